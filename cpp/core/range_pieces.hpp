// What is mapped in one address range, shared by the range and its mappings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "hip/runtime.hpp"

namespace hipplan {

class range_pieces {
 public:
  /// HIP 7.0 to 7.2 add the sizes of a range's pieces in the order of heap addresses, and refuse a
  /// hipMemSetAccess whose size no sum meets. hipplan/program/pieces.py finds the calls that are always
  /// accepted; for one of them it must be known where all that is mapped lies, which is kept on these
  /// releases only.
  [[nodiscard]] static bool sums_in_any_order(const hip::runtime& runtime) noexcept {
    return runtime.version() >= 70000000 && runtime.version() < 70300000;
  }

  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  /// Before the map, because this may find no memory for its own; what the map says goes to mapped().
  void expect(const hip::runtime& runtime, std::uintptr_t address, std::size_t size_bytes) {
    if (sums_in_any_order(runtime)) expected_ = {{address, size_bytes}};
  }
  void mapped(bool succeeded) {
    if (succeeded) {
      ++count_;
      known_.merge(expected_);
    }
    expected_.clear();
  }
  void remove(std::uintptr_t address) {
    --count_;
    known_.erase(address);
  }

  struct extent {
    std::uintptr_t address;
    std::size_t size_bytes;
  };
  /// From the lowest mapping on, all that is mapped; `one` where that is not known.
  [[nodiscard]] extent all(extent one) const noexcept {
    if (known_.empty()) return one;
    std::size_t size_bytes = 0;
    for (const auto& [address, piece_bytes] : known_) size_bytes += piece_bytes;
    return {known_.begin()->first, size_bytes};
  }

 private:
  std::size_t count_ = 0;
  std::map<std::uintptr_t, std::size_t> expected_;
  std::map<std::uintptr_t, std::size_t> known_;  ///< address to bytes
};

}  // namespace hipplan
