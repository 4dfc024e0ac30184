// When to stop for a moment, asked after every call of a long row of them.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace hipplan {

class deadline {
 public:
  using time = std::chrono::steady_clock::time_point;
  explicit deadline(time until) : until_(until) {}

  /// Notified of each call. It looks at the clock after 1, 2, 4, 8, 16, 32, 48 ... of
  /// them, because after each it would take a fifth of what all else takes around a driver call. Never more
  /// than 16 pass unseen: calls that were quick may be followed by slow ones.
  void call_made() {
    if (++calls_ < look_at_) return;
    look_at_ = calls_ + std::min<std::size_t>(calls_, 16);
    over_ = std::chrono::steady_clock::now() >= until_;
  }
  /// Whether it had passed when it looked last.
  [[nodiscard]] bool over() const noexcept { return over_; }

 private:
  time until_;
  std::size_t calls_ = 0;
  std::size_t look_at_ = 1;
  bool over_ = false;
};

}  // namespace hipplan
