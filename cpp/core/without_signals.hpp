// For hipplan's own threads: signals must go to the program's threads.
#pragma once

#include <pthread.h>

#include <csignal>

namespace hipplan {

/// Blocks signals on this thread while it lives. Threads that are started meanwhile keep them blocked:
/// otherwise the kernel may run the program's handler on one of them, in the middle of a driver call. Signals
/// that a thread causes itself, such as SIGSEGV, are not blocked.
class without_signals {
 public:
  without_signals() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS})
      sigdelset(&blocked, own);
    pthread_sigmask(SIG_BLOCK, &blocked, &before_);
  }
  ~without_signals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  without_signals(const without_signals&) = delete;
  without_signals& operator=(const without_signals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace hipplan
