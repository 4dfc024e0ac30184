// For work that must be done although there is no host memory for it now.
#pragma once

#include <chrono>
#include <new>
#include <thread>

namespace hipplan {

/// Repeats work while it throws std::bad_alloc, for 5 s; returns its result. Then the last std::bad_alloc
/// goes to the caller: a process in which memory stays refused must still be able to end.
template <class Work>
auto with_memory(Work work) {
  constexpr auto pause = std::chrono::milliseconds(10);
  for (auto left = std::chrono::seconds(5) / pause;; --left) {
    try {
      return work();
    } catch (const std::bad_alloc&) {
      if (left == 0) throw;
      std::this_thread::sleep_for(pause);
    }
  }
}

}  // namespace hipplan
