// Where destructors report what they could not free. release() throws instead.
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <vector>

namespace hipplan {

/// Adds a line; never throws. Out of memory it takes one of a few spare places, of 240 characters.
void report_leak(std::string_view what) noexcept;

/// The same with a text that is built only here, where a failure is caught.
template <std::invocable Words>
void report_leak(Words words) noexcept {
  try {
    const std::string text = words();
    report_leak(std::string_view(text));
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
