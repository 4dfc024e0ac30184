// This process's part of the simulator: the one machine and its lock, the thread's current device and last
// error, the log, the interceptor. Never destroyed, so calls from exit handlers find it standing.
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
  std::uint64_t generation = 0;  ///< of the machine these belong to
  bool unrecorded = false;       ///< the present call leaves last_error and last_result alone
};

class process {
 public:
  /// The process, made on first use from HIPSIM_PROFILE, HIPSIM_FAIL, HIPSIM_TRACE and HIPSIM_LOG.
  [[nodiscard]] static process& instance();
  /// The calling thread's state, fresh after a configure().
  [[nodiscard]] static thread_state& thread();

  hip::interceptor interceptor;

  /// Asked on every call, so kept where no lock is needed.
  [[nodiscard]] bool has_devices() const { return has_devices_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool keeps_only_errors() const { return keeps_only_errors_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool broken() const { return broken_; }  ///< the environment could not be read
  [[nodiscard]] bool is_forked_child() const { return forked_.load(std::memory_order_relaxed); }
  /// Replaces the machine. Throws std::invalid_argument, std::logic_error if anything is alive.
  void configure(const char* profile_text);

  /// Arms the interceptor. Throws std::invalid_argument, for a call that is not simulated too.
  void arm_faults(const char* rules);

  /// One line to the log: what was refused, or what the real library would not survive.
  void note(const char* function, const std::string& message);

 private:
  friend class reading;
  friend class writing;
  process();
  void adopt(std::unique_ptr<machine> fresh);
  // A shared_mutex lets readers in while others read, for ever if they overlap: so all pass one by one here.
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

/// The machine while others may look too: queries and copies. Not twice in one thread.
class reading {
 public:
  reading() : lock_(process::instance().shared_turn()), machine_(*process::instance().machine_) {}
  const machine* operator->() const { return &machine_; }
  const machine& operator*() const { return machine_; }

 private:
  std::shared_lock<std::shared_mutex> lock_;
  const machine& machine_;
};

/// The machine for the caller alone.
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
