#include "leak_log.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

namespace hipplan {
namespace {

// Never destroyed: owners in static storage of other libraries may still report at exit.
struct log_state {
  std::mutex mutex;
  std::vector<std::string> lines;
};

log_state& state() {
  static auto* const instance = new log_state;
  return *instance;
}

}  // namespace

void report_leak(const std::string& what) noexcept {
  try {
    auto& log = state();
    const std::lock_guard lock(log.mutex);
    log.lines.push_back(what);
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory: the line is lost, the process is not
  }
}

void retract_leak(const std::string& what) noexcept {
  auto& log = state();
  const std::lock_guard lock(log.mutex);
  if (const auto at = std::ranges::find(log.lines, what); at != log.lines.end()) log.lines.erase(at);
}

std::vector<std::string> take_leaks() {
  auto& log = state();
  const std::lock_guard lock(log.mutex);
  return std::exchange(log.lines, {});
}

}  // namespace hipplan
