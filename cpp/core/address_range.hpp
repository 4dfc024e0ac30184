// A reserved range of addresses, without memory. hipMemAddressReserve / hipMemAddressFree.
#pragma once

#include "owned.hpp"
#include "range_pieces.hpp"
#include "reserved_ranges.hpp"

namespace hipplan {

/// Where a range is, for who maps memory in it.
struct range_place {
  std::uintptr_t base;  ///< the first aligned address
  std::size_t size_bytes;
  std::shared_ptr<range_pieces> pieces;
};

class address_range : public owned {
 public:
  /// Empty. size_bytes: a multiple of the minimum granularity. alignment_bytes: 0 or a power of two.
  /// slack_bytes: reserved in addition, so that an aligned base fits: HIP checks the alignment, but may
  /// ignore it. layout: in whose name it is reserved.
  address_range(hip::runtime& runtime, plan_name name, plan_name layout, std::size_t size_bytes,
                std::size_t alignment_bytes, std::size_t slack_bytes)
      : owned(runtime, std::move(name)),
        size_bytes_(size_bytes + slack_bytes),
        alignment_bytes_(alignment_bytes),
        is_aligned_here_(slack_bytes != 0),
        entry_(reserved_ranges::prepare(shared_name(), std::move(layout), size_bytes_)) {}
  /// wanted: a hint, 0 for none.
  /// Throws hip_error: hipErrorOutOfMemory (2, also for bad arguments up to 6.3), hipErrorInvalidValue.
  void make(std::uintptr_t wanted);
  address_range(address_range&&) noexcept = default;
  ~address_range() { destroy(*this); }
  /// Throws hip_error; empty afterwards in both cases. HIP is not called while mappings that could not be
  /// unmapped remain inside: it would refuse and lose the range (hipErrorIllegalState, "not called").
  void release();

  [[nodiscard]] std::uintptr_t address() const noexcept { return address_; }
  /// The first aligned address in the range.
  [[nodiscard]] std::uintptr_t base() const noexcept {
    return is_aligned_here_ ? (address_ + alignment_bytes_ - 1) / alignment_bytes_ * alignment_bytes_
                            : address_;
  }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
  [[nodiscard]] range_place place() const noexcept {
    return {base(), size_bytes_ - (base() - address_), pieces_};
  }
  [[nodiscard]] std::string identify() const;

 private:
  std::uintptr_t address_ = 0;
  std::size_t size_bytes_;
  std::size_t alignment_bytes_;
  bool is_aligned_here_;
  reserved_ranges::prepared entry_;  ///< until it is reserved
  std::shared_ptr<range_pieces> pieces_ =
      std::make_shared<range_pieces>();  // what is mapped now; shared with the mappings
};

}  // namespace hipplan
