// Where destructors report what they could not free. release() throws instead.
#pragma once

#include <concepts>
#include <string>
#include <vector>

namespace hipplan {

/// Adds a line; never throws (out of memory drops the line).
void report_leak(const std::string& what) noexcept;

/// The same with a text that is built only here, where a failure is caught.
template <std::invocable Words>
void report_leak(Words words) noexcept {
  try {
    report_leak(words());
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory: only the line is lost
  }
}

/// Removes a line that is no longer true, if it is still in the log.
void retract_leak(const std::string& what) noexcept;

/// Removes and returns all lines. Throws std::bad_alloc, and removes none then.
[[nodiscard]] std::vector<std::string> take_leaks();

/// The same for the lines that the calling thread has reported.
[[nodiscard]] std::vector<std::string> take_leaks_here();

}  // namespace hipplan
