#include "spare_thread.hpp"

#include <pthread.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "without_signals.hpp"

namespace hipplan {
namespace {

struct worker {
  std::mutex mutex;
  std::condition_variable given;
  std::function<void()> job;
};

/// Never destroyed: the threads outlive the end of main().
struct pool {
  std::mutex mutex;
  std::vector<worker*> idle;
};

pool& workers() {
  static pool* const all = [] {
    pthread_atfork([] { workers().mutex.lock(); }, [] { workers().mutex.unlock(); },
                   [] {
                     workers().idle.clear();  // a child has only the thread that forked
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
      self.given.wait(lock, [&] { return static_cast<bool>(self.job); });
    }
    self.job();
    self.job = nullptr;
    const std::lock_guard lock(workers().mutex);
    workers().idle.push_back(&self);
  }
}

worker* idle_one() {
  const std::lock_guard lock(workers().mutex);
  if (workers().idle.empty()) return nullptr;
  worker* const found = workers().idle.back();
  workers().idle.pop_back();
  return found;
}

}  // namespace

void run_on_spare_thread(std::function<void()> job) {
  worker* const idle = idle_one();
  auto fresh = idle ? nullptr : std::make_unique<worker>();
  worker& chosen = idle ? *idle : *fresh;
  {
    const std::lock_guard lock(chosen.mutex);
    chosen.job = std::move(job);
  }
  chosen.given.notify_one();
  if (!fresh) return;
  const without_signals started;
  std::thread([self = fresh.get()] { work(*self); }).detach();
  (void)fresh.release();  // the thread's from here on
}

}  // namespace hipplan
