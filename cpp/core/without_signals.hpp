// For threads of our own: signals are for the program's threads.
#pragma once

#include <pthread.h>

#include <csignal>

namespace hipplan {

/// Blocks signals on this thread while it lives. Threads that are started meanwhile keep them blocked: else
/// the kernel may choose one of them to run the program's handler on, in the middle of a driver call. Not
/// those that a thread brings upon itself, which nobody else could answer.
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
