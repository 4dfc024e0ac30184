// For what may not be left undone because a little memory is lacking: it may come back.
#pragma once

#include <chrono>
#include <new>
#include <thread>

namespace hipplan {

/// Does it again and again while there is no memory for it; its result.
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
