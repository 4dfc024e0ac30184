// Where destructors report what they could not give back. Named releases throw instead.
#pragma once

#include <string>
#include <vector>

namespace hipplan {

/// Adds a line; never throws (out of memory drops the line).
void report_leak(const std::string& what) noexcept;

/// Takes a line back that is true no longer, if nobody has taken it yet.
void retract_leak(const std::string& what) noexcept;

/// Takes all lines since the last call.
[[nodiscard]] std::vector<std::string> take_leaks();

/// Takes those that the calling thread has reported.
[[nodiscard]] std::vector<std::string> take_leaks_here();

}  // namespace hipplan
