#include "words.hpp"

#include <algorithm>
#include <stdexcept>

namespace hipplan {

std::uint64_t number_of(std::span<const word> known, std::string_view text) {
  const auto match = std::ranges::find(known, text, &word::text);
  if (match != known.end()) return match->number;
  std::string all;
  for (const auto& entry : known) all.append(all.empty() ? "" : ", ").append(entry.text);
  throw std::invalid_argument("a row has '" + std::string(text) + "' where it needs one of " + all);
}

std::string text_of(std::span<const word> known, std::uint64_t number) {
  const auto match = std::ranges::find(known, number, &word::number);
  return match == known.end() ? std::to_string(number) : std::string(match->text);
}

}  // namespace hipplan
