// The mappings in one address range, as data that the range and its mappings share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "hip/runtime.hpp"

namespace hipplan {

class range_pieces {
 public:
  /// HIP 7.0 to 7.2 add up the sizes of a range's mappings, in the order of their heap addresses, and refuse
  /// a hipMemSetAccess whose size is not equal to one of these sums. hipplan/lowering/pieces.py finds the
  /// calls that are always accepted; one of them covers everything that is mapped. So where it lies is
  /// recorded, on these releases only.
  [[nodiscard]] static bool sums_in_any_order(const hip::runtime& runtime) noexcept {
    return runtime.version() >= 70000000 && runtime.version() < 70300000;
  }

  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  /// Call it before hipMemMap, because it may throw std::bad_alloc; then mapped() with the result.
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
  /// The extent of everything that is mapped; `single` if that is not recorded.
  [[nodiscard]] extent all(extent single) const noexcept {
    if (known_.empty()) return single;
    std::size_t size_bytes = 0;
    for (const auto& [address, piece_bytes] : known_) size_bytes += piece_bytes;
    return {known_.begin()->first, size_bytes};
  }

 private:
  std::size_t count_ = 0;
  std::map<std::uintptr_t, std::size_t> expected_;
  std::map<std::uintptr_t, std::size_t> known_;  ///< address -> bytes
};

}  // namespace hipplan
