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

/// This process's own object of a kind, never destroyed. A forked child gets a new one, because a thread of
/// the parent may have held a mutex in the old one.
template <class Kind>
Kind& of_this_process() {
  struct owned_by {
    unsigned process = this_process();
    Kind what{};
  };
  static std::atomic<owned_by*> current{new owned_by};
  auto* here = current.load();
  if (here->process == this_process()) return here->what;
  auto* const fresh = new owned_by;
  if (current.compare_exchange_strong(here, fresh)) return fresh->what;
  delete fresh;
  return here->what;
}

}  // namespace hipplan
