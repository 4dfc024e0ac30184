// For work that must be done although there is no host memory for it now.
#pragma once

#include <chrono>
#include <new>
#include <thread>

namespace hipplan {

/// How long to wait for memory in a row: a process in which it stays refused must still be able to end.
class memory_wait {
 public:
  /// Waits a moment; returns false once it has waited for 5 s.
  bool again() {
    if (left_ == 0) return false;
    --left_;
    std::this_thread::sleep_for(pause);
    return true;
  }

 private:
  static constexpr auto pause = std::chrono::milliseconds(10);
  long left_ = std::chrono::seconds(5) / pause;
};

/// Repeats work while it throws std::bad_alloc, for 5 s; returns its result. Then the last std::bad_alloc
/// goes to the caller.
template <class Work>
auto with_memory(Work work) {
  for (memory_wait wait;;) {
    try {
      return work();
    } catch (const std::bad_alloc&) {
      if (!wait.again()) throw;
    }
  }
}

}  // namespace hipplan
