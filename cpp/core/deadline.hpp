// When to stop for a moment, asked after every call of a long row of them.
#pragma once

#include <chrono>
#include <cstddef>

namespace hipplan {

class deadline {
 public:
  using time = std::chrono::steady_clock::time_point;
  explicit deadline(time until) : until_(until) {}

  /// Whether it has passed: asked after each call. It looks at the clock after 1, 2, 4, 8 ... of them,
  /// because after each it would take a fifth of what all else takes around a driver call; so it may be as
  /// late again as the time was long.
  [[nodiscard]] bool passed() {
    if (++calls_ < look_at_) return false;
    look_at_ = 2 * calls_;
    return std::chrono::steady_clock::now() >= until_;
  }

 private:
  time until_;
  std::size_t calls_ = 0;
  std::size_t look_at_ = 1;
};

}  // namespace hipplan
