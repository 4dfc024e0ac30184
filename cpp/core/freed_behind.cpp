#include "freed_behind.hpp"

#include <unistd.h>

#include <algorithm>

#include "retired.hpp"
#include "spare_thread.hpp"
#include "with_memory.hpp"

namespace hipplan {
namespace {

/// What is being freed in this process. Never destroyed; a forked child does not touch it, because a thread
/// of the parent may hold its mutex.
struct all_under_way {
  const pid_t process = getpid();
  std::mutex mutex;
  std::vector<std::weak_ptr<freed_behind>> works;
};

all_under_way& under_way() {
  static auto* const here = new all_under_way;
  return *here;
}

std::vector<std::shared_ptr<freed_behind>> works_under_way() {
  auto& here = under_way();
  std::vector<std::shared_ptr<freed_behind>> out;
  const std::lock_guard lock(here.mutex);
  std::erase_if(here.works, [](const auto& each) { return each.expired(); });
  out.reserve(here.works.size());
  for (const auto& each : here.works) {
    if (auto work = each.lock()) out.push_back(std::move(work));
  }
  return out;
}

}  // namespace

freed_behind::freed_behind(runtime_ptr runtime, std::size_t room, std::vector<described> contents)
    : runtime_(std::move(runtime)), contents_(std::move(contents)), report_(std::make_unique<undo_report>()) {
  buffers_.reserve(room);
  report_->leaks.reserve(room);
}

freed_behind::~freed_behind() = default;

void freed_behind::begin(const std::shared_ptr<freed_behind>& what) noexcept {
  try {
    auto& here = under_way();
    {
      const std::lock_guard lock(here.mutex);
      here.works.push_back(what);
    }
    run_on_spare_thread([what] { what->run(); });
  } catch (const std::exception&) {  // no thread, or no memory for one
    what->run();
  }
}

void freed_behind::run() noexcept {
  // The latest first, as everywhere. An owner that is not released here reports itself when it is destroyed.
  while (!buffers_.empty()) {
    auto& last = buffers_.back();
    try {
      with_memory([&] { release_into(*report_, last, [&] { last.release(); }); });
    } catch (const std::exception& error) {
      report_leak(std::string_view(error.what()));
    }
    buffers_.pop_back();
  }
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  ended_.notify_all();
}

bool freed_behind::wait_until(std::chrono::steady_clock::time_point until) const {
  if (!runtime_->may_call()) return true;  // the thread belongs to the parent process
  std::unique_lock lock(mutex_);
  return ended_.wait_until(lock, until, [&] { return done_; });
}

void freed_behind::report_into(undo_report& report) const {
  report.leaks.reserve(report.leaks.size() + report_->leaks.size());
  auto copies = report_->leaks;
  std::ranges::move(copies, std::back_inserter(report.leaks));
}

void freed_behind::log_failures() const noexcept {
  for (const auto& leak : report_->leaks) report_leak(std::string_view(leak.error.what()));
}

bool freed_behind::all_done_until(std::chrono::steady_clock::time_point until) {
  if (under_way().process != getpid()) return true;
  return std::ranges::all_of(works_under_way(), [&](const auto& work) { return work->wait_until(until); });
}

}  // namespace hipplan
