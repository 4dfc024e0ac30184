#include "words.hpp"

#include <algorithm>
#include <stdexcept>

namespace hipplan {

std::uint64_t number_of(std::span<const word> known, std::string_view text) {
  const auto found = std::ranges::find(known, text, &word::text);
  if (found != known.end()) return found->number;
  std::string all;
  for (const auto& one : known) all.append(all.empty() ? "" : ", ").append(one.text);
  throw std::invalid_argument("a row has '" + std::string(text) + "' where it needs one of " + all);
}

std::string text_of(std::span<const word> known, std::uint64_t number) {
  const auto found = std::ranges::find(known, number, &word::number);
  return found == known.end() ? std::to_string(number) : std::string(found->text);
}

}  // namespace hipplan
