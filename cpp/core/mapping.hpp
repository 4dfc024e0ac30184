// An allocation placed in an address range. hipMemMap / hipMemUnmap / hipMemSetAccess.
#pragma once

#include <span>

#include "address_range.hpp"
#include "allocation.hpp"

namespace hipplan {

class mapping : public owned {
 public:
  /// Empty. offset_bytes: where in the range.
  mapping(hip::runtime& runtime, plan_name name, const address_range& range, std::size_t offset_bytes,
          std::size_t size_bytes)
      : owned(runtime, std::move(name)),
        address_(range.base() + offset_bytes),
        size_bytes_(size_bytes),
        pieces_(range.pieces_) {}
  /// hipMemMap. memory: at least as large, mapped from its first byte.
  /// Nobody has access until set_access(). Up to 7.2 HIP reports success whatever happened; then the
  /// failure shows at set_access().
  /// Throws hip_error: hipErrorInvalidValue, hipErrorOutOfMemory, hipErrorNotSupported (CUDA: partial).
  void make(const allocation& memory) {
    pieces_->expect(runtime(), address_, size_bytes_);
    made(memory, making(memory).make(runtime()));
  }
  [[nodiscard]] driver_call making(const allocation& memory) const noexcept {
    return {.which = driver_call::function::hipMemMap,
            .address = address_,
            .size_bytes = size_bytes_,
            .handle = memory.get()};
  }
  void made(const allocation& memory, hip::hipError_t result);
  mapping(mapping&&) noexcept = default;
  ~mapping() { destroy(*this); }
  /// Unmaps exactly what was mapped, the one form that is right in every release. Does not synchronise:
  /// the caller waits for the devices that can reach the memory. Throws hip_error; empty in both cases.
  void release();
  /// Whether release() is this one call, and no question before it.
  [[nodiscard]] bool releases_plainly() const noexcept;
  [[nodiscard]] driver_call releasing() const noexcept {
    return {.which = driver_call::function::hipMemUnmap, .address = address_, .size_bytes = size_bytes_};
  }
  void released(hip::hipError_t result);
  /// The same for a mapping that is to be put back if something else fails, with make(): throws hip_error,
  /// and then it is still mapped and owned.
  void take_out();

  /// Gives or takes rights on the whole mapping; devices not named keep what they have.
  /// together: on all that is mapped in the range, which lies without a hole and has the same rights.
  /// Throws hip_error: hipErrorInvalidValue.
  void set_access(std::span<const hip::hipMemAccessDesc> rights, bool together) const {
    access_set(rights, setting_access(rights, together).make(runtime()));
  }
  [[nodiscard]] driver_call setting_access(std::span<const hip::hipMemAccessDesc> rights,
                                           bool together) const noexcept {
    const range_pieces::extent own{address_, size_bytes_};
    const auto named = together ? pieces_->all(own) : own;
    return {.which = driver_call::function::hipMemSetAccess,
            .address = named.address,
            .size_bytes = named.size_bytes,
            .rights = rights};
  }
  void access_set(std::span<const hip::hipMemAccessDesc> rights, hip::hipError_t result) const;
  /// Whether make() and set_access() are one plain call each. Not on HIP 7.0 to 7.2: see range_pieces.hpp.
  [[nodiscard]] static bool is_plain(const hip::runtime& runtime) noexcept {
    return !range_pieces::sums_in_any_order(runtime);
  }

  [[nodiscard]] std::uintptr_t address() const noexcept { return address_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
  [[nodiscard]] std::string identify() const;

 private:
  /// hipMemMap failed but returned success: unmapping nothing may crash there.
  [[nodiscard]] bool never_mapped(hip::runtime& runtime) const;

  /// For messages: where and how large.
  [[nodiscard]] std::string placed() const;

  std::uintptr_t address_;
  std::size_t size_bytes_;
  std::shared_ptr<range_pieces> pieces_;
  mutable bool proven_ = false;  ///< hipMemSetAccess has succeeded, so it is really mapped
};

}  // namespace hipplan
