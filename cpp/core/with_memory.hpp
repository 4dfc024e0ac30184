// For work that must be done even if there is no host memory for it now.
#pragma once

#include <chrono>
#include <new>
#include <thread>

namespace hipplan {

/// Repeats work while it throws std::bad_alloc; returns its result.
template <class Work>
auto with_memory(Work work) {
  for (;;) {
    try {
      return work();
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

}  // namespace hipplan
