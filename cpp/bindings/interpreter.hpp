// The GIL, and how often signals are checked.
#pragma once

#include <pybind11/pybind11.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

namespace hipplan {

namespace py = pybind11;

/// Releases the GIL while it lives. If the interpreter has ended meanwhile, Python up to 3.13 ends a thread
/// that requests the GIL with pthread_exit, whose unwinding must not pass a destructor. So such a thread
/// sleeps until the process ends, as Python 3.14 does it.
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

/// Holds the GIL while it lives, on any thread. At the interpreter's end as without_gil.
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

/// A shared_ptr whose object is destroyed without the GIL: its destructor calls the driver and may wait.
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

/// Every call that may wait for the driver, or for a lock that is held during driver calls, runs without the
/// GIL. The locks of lease books and memory pools are held for moments, and never by a thread that waits for
/// the GIL.
using no_gil = py::call_guard<without_gil>;

/// How long a series of driver calls may run before signals are checked. Tests of driver calls that fail make
/// it longer: each series reads and sets the current device, so that the number of calls would depend on the
/// time.
inline std::atomic<std::uint32_t> ms_between_signals{5};

inline std::chrono::steady_clock::time_point signals_due() {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(ms_between_signals.load());
}

}  // namespace hipplan
