// A deadline that is cheap to check after every one of thousands of driver calls.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace hipplan {

class deadline {
 public:
  using time = std::chrono::steady_clock::time_point;
  explicit deadline(time until) : until_(until) {}

  /// Counts a call. It reads the clock after 1, 2, 4, 8, 16, 32, 48 ... calls, because reading it after each
  /// would add a fifth to hipplan's own cost of a driver call. Never more than 16 calls pass without a check:
  /// slow calls may follow quick ones.
  void call_made() {
    if (++calls_ < check_at_) return;
    check_at_ = calls_ + std::min<std::size_t>(calls_, 16);
    over_ = std::chrono::steady_clock::now() >= until_;
  }
  /// Whether the deadline had passed at the last check.
  [[nodiscard]] bool over() const noexcept { return over_; }

 private:
  time until_;
  std::size_t calls_ = 0;
  std::size_t check_at_ = 1;
  bool over_ = false;
};

}  // namespace hipplan
