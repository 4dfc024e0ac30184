// All address ranges that hipplan has reserved in this process: so an error can say whose an address is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "plan_name.hpp"

namespace hipplan {

class reserved_ranges {
 public:
  struct entry {
    std::size_t size_bytes;
    plan_name range;
    plan_name layout;
  };
  /// An entry that is added without a request for memory.
  using prepared = std::map<std::uintptr_t, entry>::node_type;

  [[nodiscard]] static prepared prepare(plan_name range, plan_name layout, std::size_t size_bytes);
  static void add(prepared&& what, std::uintptr_t address) noexcept;
  static void remove(std::uintptr_t address) noexcept;
  /// Says which range has a part of these addresses; empty: none, or only the range at `but`.
  [[nodiscard]] static std::string who_has(std::uintptr_t address, std::size_t size_bytes,
                                           std::uintptr_t but);
};

}  // namespace hipplan
