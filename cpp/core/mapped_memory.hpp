// What this process has mapped, as /proc/self/maps says it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hipplan {

class mapped_memory {
 public:
  /// Reads it. Throws std::bad_alloc. Empty if it cannot be read.
  [[nodiscard]] static mapped_memory now();

  /// Describes a mapping that has a part of these addresses and that the process may access; empty: none.
  /// Mappings without any right do not count: a driver keeps free addresses in such mappings.
  [[nodiscard]] std::string accessible_at(std::uintptr_t address, std::size_t size_bytes) const;
  /// Whether an address is in a mapping of any kind.
  [[nodiscard]] bool contains(std::uintptr_t address) const;
  [[nodiscard]] bool empty() const noexcept { return all_.empty(); }

 private:
  struct mapping {
    std::uintptr_t begin;
    std::uintptr_t end;
    bool accessible;
    std::size_t name;  ///< where it begins in the text; the end of its line: there is none
  };
  std::string text_;
  std::vector<mapping> all_;  ///< by address
};

}  // namespace hipplan
