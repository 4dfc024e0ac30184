// The simulator in this process: the machine and its lock, the threads' current device and last error, the
// log, the interceptor. Never destroyed, because exit handlers may call HIP.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>

#include "hip/intercept.hpp"
#include "machine.hpp"

namespace hipsim {

struct thread_state {
  int device = 0;
  std::uint32_t last_error = 0;
  std::uint32_t last_result = 0;
  std::uint64_t generation = 0;  ///< of the machine that this state belongs to
  bool unrecorded = false;       ///< the present call must not change last_error and last_result
};

class process {
 public:
  /// The process's state, created on first use from HIPSIM_PROFILE, HIPSIM_FAIL, HIPSIM_TRACE and HIPSIM_LOG.
  [[nodiscard]] static process& instance();
  /// The calling thread's state; configure() resets it.
  [[nodiscard]] static thread_state& thread();

  hip::interceptor interceptor;

  /// Read on every call, so it needs no lock.
  [[nodiscard]] bool has_devices() const { return has_devices_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool keeps_only_errors() const { return keeps_only_errors_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool broken() const { return broken_; }  ///< the settings in the environment are invalid
  [[nodiscard]] bool is_forked_child() const { return forked_.load(std::memory_order_relaxed); }
  /// Replaces the machine. Throws std::invalid_argument, std::logic_error if anything is alive.
  void configure(const char* profile_text);

  /// Arms the interceptor. Throws std::invalid_argument, also for a call that is not simulated.
  void arm_faults(const char* rules);

  /// Writes a line to the log: why a call was refused, or that it would crash the real library.
  void note(const char* function, const std::string& message);

 private:
  friend class reading;
  friend class writing;
  process();
  void adopt(std::unique_ptr<machine> fresh);
  // A shared_mutex can starve a writer while readers overlap, so readers and writers queue at the turnstile.
  [[nodiscard]] std::shared_lock<std::shared_mutex> shared_turn() {
    const std::lock_guard turn(turnstile_);
    return std::shared_lock(lock_);
  }
  [[nodiscard]] std::unique_lock<std::shared_mutex> own_turn() {
    const std::lock_guard turn(turnstile_);
    return std::unique_lock(lock_);
  }

  std::mutex turnstile_;
  std::shared_mutex lock_;
  std::unique_ptr<machine> machine_;
  std::atomic<std::uint64_t> generation_{1};
  std::atomic<bool> forked_{false};
  std::atomic<bool> has_devices_{false};
  std::atomic<bool> keeps_only_errors_{false};
  bool broken_ = false;
  std::mutex log_lock_;
  std::FILE* log_ = nullptr;
};

/// Shared access to the machine, for queries and copies. At most one per thread.
class reading {
 public:
  reading() : lock_(process::instance().shared_turn()), machine_(*process::instance().machine_) {}
  const machine* operator->() const { return &machine_; }
  const machine& operator*() const { return machine_; }

 private:
  std::shared_lock<std::shared_mutex> lock_;
  const machine& machine_;
};

/// Exclusive access to the machine.
class writing {
 public:
  writing() : lock_(process::instance().own_turn()), machine_(*process::instance().machine_) {}
  machine* operator->() { return &machine_; }
  machine& operator*() { return machine_; }

 private:
  std::unique_lock<std::shared_mutex> lock_;
  machine& machine_;
};

[[nodiscard]] inline int current_device() { return process::thread().device; }
inline void note(const char* function, const std::string& message) {
  process::instance().note(function, message);
}
[[nodiscard]] std::string hex(std::uint64_t value);

}  // namespace hipsim
