#include "idle_wait.hpp"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <thread>

#include "spare_thread.hpp"
#include "with_memory.hpp"

namespace hipplan {
namespace {

using clock = std::chrono::steady_clock;

/// How long the caller polls before it sleeps: if the devices are idle already, waking up would take longer
/// than the whole wait.
constexpr auto polling = std::chrono::microseconds(300);

}  // namespace

struct idle_wait::progress {
  runtime_ptr runtime;
  std::vector<device_id> devices;
  std::atomic<std::size_t> done{0};  ///< how many devices
  mutable std::mutex mutex;          ///< protects the members below
  mutable std::condition_variable changed;
  std::vector<std::pair<std::size_t, hip::hip_error>> failures;
  std::uint64_t retried = 0;

  [[nodiscard]] bool finished() const { return done.load(std::memory_order_acquire) == devices.size(); }

  /// The current device is not restored: the thread belongs to this wait.
  void synchronize(device_id device) const {
    runtime->check(runtime->hipSetDevice(device.value), "hipSetDevice", text(device));
    runtime->check(runtime->hipDeviceSynchronize(), "hipDeviceSynchronize", text(device));
  }

  /// The error of the wait for a device. If there is no memory for it, waits again: the result is the same.
  /// Where memory stays refused, the error is lost; the calls that follow on the device fail with it.
  [[nodiscard]] std::optional<hip::hip_error> failure_of(device_id device) const noexcept {
    for (memory_wait wait;;) {
      try {
        synchronize(device);
        return std::nullopt;
      } catch (hip::hip_error& error) {
        return std::move(error);  // a copy would need memory
      } catch (const std::bad_alloc&) {
        if (!wait.again()) return std::nullopt;
      }
    }
  }

  void run() {
    const auto before = hip::runtime::retries_of_this_thread();
    for (std::size_t place = 0; place < devices.size(); ++place) {
      auto failure = failure_of(devices[place]);
      {
        const std::lock_guard lock(mutex);
        if (failure) failures.emplace_back(place, std::move(*failure));  // there is room
        retried = hip::runtime::retries_of_this_thread() - before;
        done.store(place + 1, std::memory_order_release);
      }
      changed.notify_all();
    }
  }
};

idle_wait::idle_wait(runtime_ptr runtime, std::vector<device_id> devices)
    : progress_(std::make_shared<progress>()) {
  progress_->runtime = std::move(runtime);
  progress_->devices = std::move(devices);
  progress_->failures.reserve(progress_->devices.size());
  try {
    run_on_spare_thread([shared = progress_] { shared->run(); });
  } catch (const std::exception&) {  // no thread, or no memory for one
    auto& calls = *progress_->runtime;
    int current = 0;
    const bool known = calls.hipGetDevice(&current) == hip::hipSuccess;
    progress_->run();
    if (!known || calls.hipSetDevice(current) != hip::hipSuccess) calls.forget_last_error();
  }
}

bool idle_wait::wait_until(clock::time_point until) const {
  if (!progress_->runtime->may_call()) return true;  // the waiting thread belongs to the parent process
  for (const auto asleep = std::min(until, clock::now() + polling); clock::now() < asleep;) {
    if (progress_->finished()) return true;
    std::this_thread::yield();
  }
  std::unique_lock lock(progress_->mutex);
  return progress_->changed.wait_until(lock, until, [&] { return progress_->finished(); });
}

std::optional<std::size_t> idle_wait::busy() const {
  const auto place = progress_->done.load(std::memory_order_acquire);
  return place < progress_->devices.size() ? std::optional(place) : std::nullopt;
}

std::vector<std::pair<std::size_t, hip::hip_error>> idle_wait::failures() const {
  const std::lock_guard lock(progress_->mutex);
  return progress_->failures;
}

std::uint64_t idle_wait::retried() const {
  const std::lock_guard lock(progress_->mutex);
  return progress_->retried;
}

}  // namespace hipplan
