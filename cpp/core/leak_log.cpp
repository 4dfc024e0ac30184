#include "leak_log.hpp"

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <thread>

namespace hipplan {
namespace {

// Never destroyed: owners in static storage of other libraries may still report at exit.
struct log_state {
  struct line {
    std::thread::id by;
    std::string text;
  };
  std::mutex mutex;
  std::vector<line> lines;
};

/// fork() waits for a thread that holds the mutex: otherwise the child could wait for ever.
log_state& state() {
  static auto* const instance = [] {
    pthread_atfork([] { state().mutex.lock(); }, [] { state().mutex.unlock(); },
                   [] {
                     state().lines.clear();  // the parent reports them
                     state().mutex.unlock();
                   });
    return new log_state;
  }();
  return *instance;
}

template <class Wanted>
std::vector<std::string> take(Wanted wanted) {
  auto& log = state();
  const std::lock_guard lock(log.mutex);
  std::vector<std::string> out;
  out.reserve(static_cast<std::size_t>(std::ranges::count_if(log.lines, wanted)));
  for (auto& line : log.lines) {
    if (wanted(line)) out.push_back(std::move(line.text));
  }
  std::erase_if(log.lines, wanted);
  return out;
}

}  // namespace

void report_leak(const std::string& what) noexcept {
  try {
    auto& log = state();
    const std::lock_guard lock(log.mutex);
    log.lines.push_back({std::this_thread::get_id(), what});
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory: only the line is lost
  }
}

void retract_leak(const std::string& what) noexcept {
  auto& log = state();
  const std::lock_guard lock(log.mutex);
  if (const auto at = std::ranges::find(log.lines, what, &log_state::line::text); at != log.lines.end())
    log.lines.erase(at);
}

std::vector<std::string> take_leaks() {
  return take([](const auto&) { return true; });
}

std::vector<std::string> take_leaks_here() {
  return take([](const auto& line) { return line.by == std::this_thread::get_id(); });
}

}  // namespace hipplan
