#include "spare_thread.hpp"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "without_signals.hpp"

namespace hipplan {
namespace {

/// How long a thread polls for a job that was announced.
constexpr auto awake = std::chrono::microseconds(300);

struct worker {
  std::mutex mutex;
  std::condition_variable wake;
  std::function<void()> job;
  bool announced = false;  ///< a job is coming
  std::atomic<bool> has_job{false};
};

/// Never destroyed: the threads outlive main().
struct pool {
  std::mutex mutex;
  std::vector<worker*> idle;  ///< has room for all: a worker cannot report a failed allocation
  std::size_t all = 0;
};

pool& workers() {
  static pool* const all = [] {
    pthread_atfork([] { workers().mutex.lock(); }, [] { workers().mutex.unlock(); },
                   [] {
                     workers().idle.clear();  // a child has only the thread that forked
                     workers().all = 0;
                     workers().mutex.unlock();
                   });
    return new pool;
  }();
  return *all;
}

void work(worker& self) {
  for (;;) {
    {
      std::unique_lock lock(self.mutex);
      self.wake.wait(lock, [&] { return self.announced || self.job; });
      self.announced = false;
    }
    const auto asleep = std::chrono::steady_clock::now() + awake;
    while (!self.has_job.load() && std::chrono::steady_clock::now() < asleep) std::this_thread::yield();
    if (!self.has_job.load()) continue;
    self.job();
    self.job = nullptr;
    self.has_job.store(false);
    const std::lock_guard lock(workers().mutex);
    workers().idle.push_back(&self);  // there is room
  }
}

void give(worker& to, std::function<void()> job) {
  {
    const std::lock_guard lock(to.mutex);
    to.job = std::move(job);
    to.has_job.store(true);
  }
  to.wake.notify_one();
}

worker* take_idle() {
  const std::lock_guard lock(workers().mutex);
  if (workers().idle.empty()) return nullptr;
  worker* const last = workers().idle.back();
  workers().idle.pop_back();
  return last;
}

}  // namespace

void expect_job_for_spare_thread() {
  const std::lock_guard lock(workers().mutex);
  if (workers().idle.empty()) return;
  worker& next = *workers().idle.back();
  {
    const std::lock_guard worker_lock(next.mutex);
    next.announced = true;
  }
  next.wake.notify_one();
}

void run_on_spare_thread(std::function<void()> job) {
  if (worker* const idle = take_idle()) return give(*idle, std::move(job));
  const auto fresh = std::make_shared<worker>();
  give(*fresh, std::move(job));
  const std::lock_guard lock(workers().mutex);
  workers().idle.reserve(workers().all + 1);
  const without_signals started;
  std::thread([fresh] { work(*fresh); }).detach();
  ++workers().all;
}

}  // namespace hipplan
