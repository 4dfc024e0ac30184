// Living with the interpreter: who holds the GIL, and how soon signals are looked at.
#pragma once

#include <pybind11/pybind11.h>
#include <unistd.h>

#include <chrono>
#include <memory>

namespace hipplan {

namespace py = pybind11;

/// Gives up the GIL while it lives. Where the interpreter has ended meanwhile, Python up to 3.13 ends the
/// thread that asks for the GIL by unwinding it (pthread_exit), which no destructor survives: such a thread
/// sleeps until the process is gone, as from Python 3.14 on.
class without_gil {
 public:
  without_gil() : state_(PyEval_SaveThread()) {}
  without_gil(const without_gil&) = delete;
  without_gil& operator=(const without_gil&) = delete;
  ~without_gil() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      for (;;) pause();
    }
  }

 private:
  PyThreadState* state_;
};

/// Holds the GIL while it lives, whichever thread this is. At the interpreter's end as without_gil.
class with_gil {
 public:
  with_gil() noexcept {
    try {
      state_ = PyGILState_Ensure();
    } catch (...) {
      for (;;) pause();
    }
  }
  with_gil(const with_gil&) = delete;
  with_gil& operator=(const with_gil&) = delete;
  ~with_gil() { PyGILState_Release(state_); }

 private:
  PyGILState_STATE state_;
};

/// The end of what calls the driver and may wait, so the GIL is given up for it.
template <class Owned>
std::shared_ptr<Owned> ended_without_gil(Owned* made) {
  return std::shared_ptr<Owned>(made, [](Owned* self) {
    if (PyGILState_Check() == 0) {
      delete self;
      return;
    }
    const without_gil release;
    delete self;
  });
}

/// Every call that may wait for the driver, or for a lock that somebody holds during a driver call, runs
/// without the GIL. The locks of lease books and memory pools are held for moments, and never by who waits
/// for the GIL.
using no_gil = py::call_guard<without_gil>;

/// How long many driver calls in a row may take before somebody looks whether a signal has come.
inline constexpr std::chrono::milliseconds between_signals{5};

}  // namespace hipplan
