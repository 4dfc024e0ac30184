#include "host_functions.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "machine.hpp"

namespace hipsim {

struct host_function {
  stream_place place;
  host_functions before;
  std::function<void()> function;
  bool returned = false;  // guarded by the lock of all
};

namespace {

struct all_functions {
  std::mutex lock;
  std::condition_variable one_returned;
  host_functions unfinished;
  std::atomic<std::size_t> count{0};  // so that a program without such functions takes no lock
};

all_functions& all() {
  static auto* const only = new all_functions;  // leaked: a thread may outlive the exit handlers
  return *only;
}

thread_local bool inside_a_function = false;

bool is_ahead(const host_function& one, const stream_place& place) {
  if (one.place.device != place.device) return false;
  const bool with_the_null_stream =
      (one.place.id == 0 || place.id == 0) && one.place.blocking && place.blocking;
  return one.place.id == place.id || with_the_null_stream;
}

template <class Condition>
host_functions unfinished_that(Condition holds) {
  auto& here = all();
  if (here.count.load(std::memory_order_acquire) == 0 || inside_a_function) return {};
  const std::lock_guard lock(here.lock);
  host_functions out;
  std::ranges::copy_if(here.unfinished, std::back_inserter(out),
                       [&](const auto& one) { return holds(*one); });
  return out;
}

bool all_returned(const host_functions& functions) {
  return std::ranges::all_of(functions, [](const auto& one) { return one->returned; });
}

void finish(const std::shared_ptr<host_function>& one) {
  auto& here = all();
  const std::lock_guard lock(here.lock);
  one->returned = true;
  one->before.clear();
  std::erase(here.unfinished, one);
  here.count.store(here.unfinished.size(), std::memory_order_release);
  here.one_returned.notify_all();
}

}  // namespace

host_functions ahead_of(const stream_place& place) {
  return unfinished_that([&](const host_function& one) { return is_ahead(one, place); });
}

host_functions unfinished_on(int device) {
  return unfinished_that(
      [&](const host_function& one) { return device == host_device || one.place.device == device; });
}

bool have_returned(const host_functions& functions) {
  const std::lock_guard lock(all().lock);
  return all_returned(functions);
}

void wait_for(const host_functions& functions) {
  if (functions.empty()) return;
  auto& here = all();
  std::unique_lock lock(here.lock);
  here.one_returned.wait(lock, [&] { return all_returned(functions); });
}

void call_behind(const stream_place& place, host_functions before, std::function<void()> function) {
  auto one = std::make_shared<host_function>();
  one->place = place;
  one->before = std::move(before);
  one->function = std::move(function);
  auto& here = all();
  {
    const std::lock_guard lock(here.lock);
    here.unfinished.push_back(one);
    here.count.store(here.unfinished.size(), std::memory_order_release);
  }
  try {
    std::thread([one] {
      wait_for(one->before);
      inside_a_function = true;
      if (one->function) one->function();
      finish(one);
    }).detach();
  } catch (...) {
    finish(one);
    throw;
  }
}

}  // namespace hipsim
