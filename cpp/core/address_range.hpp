// Reserved addresses with nothing behind them. hipMemAddressReserve / hipMemAddressFree.
#pragma once

#include "owned.hpp"
#include "range_pieces.hpp"

namespace hipplan {

class address_range : public owned {
 public:
  /// Empty. size_bytes: a multiple of the minimum granularity.
  address_range(hip::runtime& runtime, plan_name name, std::size_t size_bytes)
      : owned(runtime, std::move(name)), size_bytes_(size_bytes) {}
  /// alignment_bytes: 0 or a power of two; HIP may not honour it, so the caller looks at address(). wanted: a
  /// hint, 0 for none.
  /// Throws hip_error: hipErrorOutOfMemory (2, also for bad arguments up to 6.3), hipErrorInvalidValue.
  void make(std::size_t alignment_bytes, std::uintptr_t wanted);
  address_range(address_range&&) noexcept = default;
  ~address_range() { destroy(*this); }
  /// Throws hip_error; empty afterwards in both cases. While mappings that could not be unmapped remain
  /// inside, HIP is not asked: it would refuse and forget the range (hipErrorIllegalState, "not called").
  void release();

  [[nodiscard]] std::uintptr_t address() const noexcept { return address_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
  [[nodiscard]] std::string identify() const;

 private:
  friend class mapping;

  std::uintptr_t address_ = 0;
  std::size_t size_bytes_;
  std::shared_ptr<range_pieces> pieces_ = std::make_shared<range_pieces>();  // mapped now, shared with them
};

}  // namespace hipplan
