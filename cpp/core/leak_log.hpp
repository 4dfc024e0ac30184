// Where destructors report what they could not give back. Named releases throw instead.
#pragma once

#include <concepts>
#include <string>
#include <vector>

namespace hipplan {

/// Adds a line; never throws (out of memory drops the line).
void report_leak(const std::string& what) noexcept;

/// The same of words that are made only here.
template <std::invocable Words>
void report_leak(Words words) noexcept {
  try {
    report_leak(words());
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory: the line is lost, the process is not
  }
}

/// Takes a line back that is true no longer, if nobody has taken it yet.
void retract_leak(const std::string& what) noexcept;

/// Takes all lines since the last call. Throws std::bad_alloc, and takes none then.
[[nodiscard]] std::vector<std::string> take_leaks();

/// Takes those of them that the calling thread has reported.
[[nodiscard]] std::vector<std::string> take_leaks_here();

}  // namespace hipplan
