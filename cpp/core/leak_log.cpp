#include "leak_log.hpp"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <mutex>
#include <new>
#include <span>
#include <thread>

namespace hipplan {
namespace {

// Never destroyed: owners in static storage of other libraries may still report at exit.
struct log_state {
  struct line {
    std::thread::id by;
    std::string text;
  };
  struct spare_line {
    std::thread::id by;
    std::array<char, 240> text;
    std::size_t size;
  };
  std::mutex mutex;
  std::vector<line> lines;
  std::array<spare_line, 32> spare;  ///< for lines that came when there was no memory
  std::size_t spare_used = 0;

  /// Makes lines of the spare places. Throws std::bad_alloc, and changes nothing then.
  void move_spare() {
    if (spare_used == 0) return;
    std::vector<line> more;
    for (const auto& one : std::span(spare).first(spare_used))
      more.push_back({one.by, std::string(one.text.data(), one.size)});
    lines.reserve(lines.size() + more.size());
    std::ranges::move(more, std::back_inserter(lines));
    spare_used = 0;
  }
};

/// fork() waits for a thread that holds the mutex: otherwise the child could wait for ever.
log_state& state() {
  static auto* const instance = [] {
    pthread_atfork([] { state().mutex.lock(); }, [] { state().mutex.unlock(); },
                   [] {
                     state().lines.clear();  // the parent reports them
                     state().spare_used = 0;
                     state().mutex.unlock();
                   });
    return new log_state;
  }();
  return *instance;
}

/// Made when the library is loaded: later there may be no memory for it.
// NOLINTNEXTLINE(bugprone-throwing-static-initialization): without memory for it nothing can be loaded
[[maybe_unused]] const auto& made_at_load = state();

template <class Wanted>
std::vector<std::string> take(Wanted wanted) {
  auto& log = state();
  const std::lock_guard lock(log.mutex);
  log.move_spare();
  std::vector<std::string> out;
  out.reserve(static_cast<std::size_t>(std::ranges::count_if(log.lines, wanted)));
  for (auto& line : log.lines) {
    if (wanted(line)) out.push_back(std::move(line.text));
  }
  std::erase_if(log.lines, wanted);
  return out;
}

}  // namespace

void report_leak(std::string_view what) noexcept {
  auto& log = state();
  const std::lock_guard lock(log.mutex);
  try {
    log.lines.push_back({std::this_thread::get_id(), std::string(what)});
  } catch (const std::bad_alloc&) {
    if (log.spare_used == log.spare.size()) return;
    auto& place = log.spare[log.spare_used++];
    place.by = std::this_thread::get_id();
    place.size = what.copy(place.text.data(), place.text.size());
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
