// What is mapped in one address range, shared by the range and its mappings.
//
// HIP 7.0 to 7.2 measure the size of hipMemSetAccess from the range's first mapping and not from the address
// (ROCm/rocm-systems 2516, 2667, 6977): behind mappings of other sizes, the call for one mapping is refused.
// From the first mapping on it is right. So there, where the plain call was refused, rights are set for
// everything from the base to the end of the mapping, and the shorter parts before it, longest first, get
// their own back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "hip/runtime.hpp"

namespace hipplan {

class range_pieces {
 public:
  /// Where the range lies: known only when it is reserved, which these must stand before.
  void begin_at(std::uintptr_t base) noexcept { base_ = base; }

  /// Whether this is one of the releases concerned.
  [[nodiscard]] static bool measures_from_the_first(const hip::runtime& runtime) noexcept {
    return runtime.version() >= 70000000 && runtime.version() < 70300000;
  }

  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  /// Before the map, because this may find no memory for its own; what the map says goes to mapped().
  void expect(const hip::runtime& runtime, std::uintptr_t address, std::size_t size_bytes) {
    if (measures_from_the_first(runtime)) expected_ = {{address, piece{size_bytes, {}, {}}}};
  }
  void mapped(std::uintptr_t address, bool succeeded) {
    if (succeeded) ++count_;
    if (!expected_.empty()) settle(address, succeeded);
  }
  void remove(std::uintptr_t address) {
    --count_;
    if (known_.empty()) return;
    has_its_rights(address);
    known_.erase(address);
  }

  /// Rights on a whole piece; devices not named keep what they have. What HIP says.
  [[nodiscard]] hip::hipError_t set_access(hip::runtime& runtime, std::uintptr_t address,
                                           std::size_t size_bytes,
                                           std::span<const hip::hipMemAccessDesc> rights);

 private:
  using rights_list = std::vector<hip::hipMemAccessDesc>;
  struct piece {
    std::size_t size_bytes;
    rights_list rights;
    std::string lost;  ///< what was reported when they could not be set again
  };
  using pieces = std::map<std::uintptr_t, piece>;

  void settle(std::uintptr_t address, bool succeeded);
  [[nodiscard]] bool reaches(pieces::const_iterator end) const;
  [[nodiscard]] hip::hipError_t from_base(hip::runtime& runtime, const piece& last, std::uintptr_t address);
  /// Or is not there any more: that they were lost is not to be told then.
  void has_its_rights(std::uintptr_t address);

  std::uintptr_t base_ = 0;
  std::size_t count_ = 0;
  pieces expected_;
  pieces known_;  ///< only on the releases concerned: there rights must be known to be set again
};

}  // namespace hipplan
