// An allocation placed in an address range. hipMemMap / hipMemUnmap / hipMemSetAccess.
#pragma once

#include <span>

#include "address_range.hpp"
#include "allocation.hpp"

namespace hipplan {

class mapping : public owned {
 public:
  /// offset_bytes: where in the range; size_bytes: at most the allocation's, from its first byte.
  /// Nobody has access until set_access(). Up to 7.2 HIP reports success whatever happened; then the
  /// failure shows at set_access().
  /// Throws hip_error: hipErrorInvalidValue, hipErrorOutOfMemory, hipErrorNotSupported (CUDA: partial).
  [[nodiscard]] static mapping map(runtime_ptr runtime, std::string name, const address_range& range,
                                   std::size_t offset_bytes, const allocation& memory,
                                   std::size_t size_bytes);
  mapping(mapping&&) noexcept = default;
  ~mapping() { destroy(*this); }
  /// Unmaps exactly what was mapped, the one form that is right in every release. Does not synchronise:
  /// the caller waits for the devices that can reach the memory. Throws hip_error; empty in both cases.
  void release();
  /// The same for a mapping that is to be put back if something else fails: throws hip_error, and then it
  /// is still mapped and owned.
  void take_out();

  /// Gives or takes rights on the whole mapping; devices not named keep what they have.
  /// Throws hip_error: hipErrorInvalidValue.
  void set_access(hip::runtime& runtime, std::span<const hip::hipMemAccessDesc> rights) const;

  [[nodiscard]] std::uintptr_t address() const noexcept { return address_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
  [[nodiscard]] std::string identify() const;

 private:
  /// hipMemMap failed and did not say so: unmapping nothing may crash there.
  [[nodiscard]] bool never_mapped(hip::runtime& runtime) const;

  mapping(runtime_ptr runtime, std::string name, std::uintptr_t address, std::size_t size_bytes,
          std::shared_ptr<range_pieces> pieces)
      : owned(std::move(runtime), std::move(name)),
        address_(address),
        size_bytes_(size_bytes),
        pieces_(std::move(pieces)) {}

  std::uintptr_t address_;
  std::size_t size_bytes_;
  std::shared_ptr<range_pieces> pieces_;
  mutable bool proven_ = false;  ///< hipMemSetAccess has succeeded, so it is really mapped
};

}  // namespace hipplan
