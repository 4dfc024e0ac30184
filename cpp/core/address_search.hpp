// Reserves a range at a wanted address.
//
// For the driver an address is a hint. CUDA ignores it while the driver has free addresses that fit, and
// takes it as soon as it has none (docs/hardware.md). So a range that lies elsewhere is kept, the driver is
// asked again, and what was kept is freed in the end. ROCm takes the hint at once, or never.
//
// CUDA gets addresses from the kernel in whole steps of 32 MiB, from the step on that begins at or after the
// hint. So a range that begins within a step has its place only if the addresses before it, the lead, are
// reserved from the beginning of that step: then the rest of the step is free, and is given next.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "deadline.hpp"
#include "held.hpp"
#include "mapped_memory.hpp"
#include "retired.hpp"
#include "rows.hpp"
#include "search_turn.hpp"

namespace hipplan {

/// An address that a plan demands cannot be had.
class address_taken : public std::runtime_error {
 public:
  /// got: where the driver placed the range. why: for the user.
  address_taken(std::uintptr_t got, const std::string& why) : std::runtime_error(why), address(got) {}
  std::uintptr_t address;
};

/// The search of one row, in steps. It owns what it keeps, from before the call that reserves it.
class address_search {
 public:
  using time = std::chrono::steady_clock::time_point;

  static constexpr std::size_t most_tries = 65536;
  static constexpr std::size_t most_bytes = std::size_t{8} << 40;  ///< of addresses that it keeps
  /// How often the driver may get new addresses from the kernel, and not take the wanted ones. A driver that
  /// does so has no free addresses that fit, so it will never take them; more than once, because other
  /// threads use the driver too.
  static constexpr std::size_t most_refusals = 16;
  static constexpr std::size_t step_bytes = std::size_t{32} << 20;  ///< of addresses that CUDA gets

  /// slot: receives the range. leftovers: receives what cannot be freed.
  address_search(hip::runtime& runtime, plan_name name, plan_name layout, const reserve_range& what,
                 held& slot, retirement& leftovers);
  address_search(const address_search&) = delete;
  address_search& operator=(const address_search&) = delete;
  ~address_search() { end(); }

  /// Searches until the slice is over; returns whether the slot has its range. until: the end of the slice.
  /// gives_up: when there is no further try. Throws hip_error, std::bad_alloc, and address_taken where the
  /// row demands the address.
  [[nodiscard]] bool go_on(deadline& slice, time until, time gives_up);
  /// Frees what was kept, the latest first, and ends the turn. It is over after that.
  void end() noexcept;

 private:
  void ask(std::size_t size_bytes, std::uintptr_t wanted, std::size_t alignment_bytes);
  void ask_next();
  void keep();
  [[nodiscard]] std::uintptr_t step_begin() const { return what_.wanted / step_bytes * step_bytes; }
  [[nodiscard]] bool passes_step() const { return what_.wanted + whole_bytes() > step_begin() + step_bytes; }
  [[nodiscard]] std::string why_cuda() const;
  [[nodiscard]] std::string why_not(time gives_up);
  [[nodiscard]] std::string why_never();
  [[nodiscard]] bool overlaps() const;
  [[nodiscard]] std::size_t whole_bytes() const { return what_.size_bytes + what_.slack_bytes; }
  /// The range that the driver gave last.
  [[nodiscard]] address_range& in_slot() const { return std::get<address_range>(slot_.what); }

  hip::runtime& runtime_;
  const plan_name name_;
  const plan_name layout_;
  const reserve_range what_;
  held& slot_;
  retirement& leftovers_;
  search_turn turn_;
  segment_ptr kept_ = std::make_shared<segment>(0);
  std::size_t kept_bytes_ = 0;
  std::size_t tries_ = 0;
  std::size_t refusals_ = 0;
  enum class lead { not_needed, sought, done };
  lead lead_ = lead::not_needed;
  mapped_memory mapped_;  ///< as last read
};

}  // namespace hipplan
