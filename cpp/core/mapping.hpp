// An allocation mapped in an address range. hipMemMap / hipMemUnmap / hipMemSetAccess.
#pragma once

#include <span>

#include "address_range.hpp"
#include "allocation.hpp"

namespace hipplan {

class mapping : public owned {
 public:
  /// Empty. offset_bytes: where in the range.
  mapping(hip::runtime& runtime, plan_name name, const range_place& range, std::size_t offset_bytes,
          std::size_t size_bytes)
      : owned(runtime, std::move(name)),
        address_(range.base + offset_bytes),
        size_bytes_(size_bytes),
        pieces_(range.pieces) {}
  mapping(hip::runtime& runtime, plan_name name, const address_range& range, std::size_t offset_bytes,
          std::size_t size_bytes)
      : mapping(runtime, std::move(name), range.place(), offset_bytes, size_bytes) {}
  /// hipMemMap. memory: at least as large, mapped from its first byte.
  /// No device has access until set_access(). Up to 7.2 HIP returns success even if it failed; then
  /// set_access() fails.
  /// Throws hip_error: hipErrorInvalidValue, hipErrorOutOfMemory, hipErrorNotSupported (CUDA: partial).
  void make(const allocation& memory) {
    pieces_->expect(runtime(), address_, size_bytes_);
    take_make_result(memory, make_call(memory).make(runtime()));
  }
  [[nodiscard]] driver_call make_call(const allocation& memory) const noexcept {
    return {.which = driver_call::function::hipMemMap,
            .address = address_,
            .size_bytes = size_bytes_,
            .handle = memory.get()};
  }
  void take_make_result(const allocation& memory, hip::hipError_t result);
  mapping(mapping&&) noexcept = default;
  ~mapping() { destroy(*this); }
  /// Unmaps exactly what was mapped, which every HIP release supports. Does not synchronise: the caller waits
  /// for the devices that can reach the memory. Throws hip_error; empty in both cases.
  void release();
  /// Whether release() is a single hipMemUnmap, without a query before it.
  [[nodiscard]] bool releases_plainly() const noexcept;
  [[nodiscard]] driver_call release_call() const noexcept {
    return {.which = driver_call::function::hipMemUnmap, .address = address_, .size_bytes = size_bytes_};
  }
  void take_release_result(hip::hipError_t result);
  /// Unmaps a mapping that a roll back maps again, with make(). Throws hip_error; then it is still mapped and
  /// owned.
  void unmap_for_restore();
  /// Maps memory after unmap_for_restore() and sets its rights; does nothing if that is done. It may be
  /// called again where it has failed. Throws hip_error.
  void restore(const allocation& memory, std::span<const hip::hipMemAccessDesc> rights);

  /// Sets rights on the whole mapping; devices that are not named keep theirs.
  /// together: on everything mapped in the range, which must have no hole and the same rights.
  /// Throws hip_error: hipErrorInvalidValue.
  void set_access(std::span<const hip::hipMemAccessDesc> rights, bool together) const {
    take_access_result(rights, access_call(rights, together).make(runtime()));
  }
  [[nodiscard]] driver_call access_call(std::span<const hip::hipMemAccessDesc> rights,
                                        bool together) const noexcept {
    const range_pieces::extent own{address_, size_bytes_};
    const auto named = together ? pieces_->all(own) : own;
    return {.which = driver_call::function::hipMemSetAccess,
            .address = named.address,
            .size_bytes = named.size_bytes,
            .rights = rights};
  }
  void take_access_result(std::span<const hip::hipMemAccessDesc> rights, hip::hipError_t result) const;
  /// Whether make() and set_access() are a single call each. Not on HIP 7.0 to 7.2: see range_pieces.hpp.
  [[nodiscard]] static bool is_plain(const hip::runtime& runtime) noexcept {
    return !range_pieces::sums_in_any_order(runtime);
  }

  [[nodiscard]] std::uintptr_t address() const noexcept { return address_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
  [[nodiscard]] std::string identify() const;

 private:
  /// Whether hipMemMap failed although it returned success: then hipMemUnmap may crash.
  [[nodiscard]] bool never_mapped(hip::runtime& runtime) const;

  /// For messages: where and how large.
  [[nodiscard]] std::string placed() const;

  std::uintptr_t address_;
  std::size_t size_bytes_;
  std::shared_ptr<range_pieces> pieces_;
  mutable bool proven_ = false;  ///< hipMemSetAccess has succeeded, so hipMemMap did too
};

}  // namespace hipplan
