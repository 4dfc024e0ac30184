// Distinguishes a forked child from its parent, at no cost.
#pragma once

#include <pthread.h>

#include <atomic>

namespace hipplan {

/// A number that is different in a forked child.
inline unsigned this_process() noexcept {
  static std::atomic<unsigned> forks{0};
  static const int watching = pthread_atfork(nullptr, nullptr, [] { ++forks; });
  (void)watching;
  return forks.load(std::memory_order_relaxed);
}

}  // namespace hipplan
