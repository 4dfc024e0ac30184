// Parsing of text that people write: fault rules, machine profiles, visibility masks.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>
#include <type_traits>

namespace hip {

[[nodiscard]] inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n";
  const auto first = text.find_first_not_of(blanks);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

/// The number that the whole text spells; nothing if it is not a number, or does not fit the type.
template <class Number>
[[nodiscard]] std::optional<Number> parse_number(std::string_view text, int base = 10) {
  Number value{};
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  std::from_chars_result read;
  if constexpr (std::is_floating_point_v<Number>) {
    read = std::from_chars(begin, end, value);
  } else {
    read = std::from_chars(begin, end, value, base);
  }
  if (read.ec != std::errc{} || read.ptr != end) return std::nullopt;
  return value;
}

}  // namespace hip
