// The members of a run of rows: consecutive chunks of a region, or what `count:` makes.
#pragma once

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

#include "fields.hpp"

namespace hipplan {

/// Raises for a run whose last member, or what counts on with its members, has no number.
inline void require_numbers(std::uint64_t first, std::uint64_t count, std::uint64_t step = 1) {
  if (step != 0 && count > (std::numeric_limits<std::uint64_t>::max() - first) / step) {
    throw std::invalid_argument("a run has a number that is too large");
  }
}

inline slot_id require_slot(slot_id slot) {
  if (slot == no_slot) throw std::invalid_argument("a run has slots");
  return slot;
}

/// The members of a run, from their number on, and their slots.
struct members {
  explicit members(fields& from)
      : name(from.text()), slot(require_slot(from.slot())), first(from.number()), count(from.number()) {
    require_numbers(first, count);
    require_numbers(slot, count);
  }
  std::string name;  ///< before the numbers
  slot_id slot;
  std::uint64_t first;
  std::uint64_t count;
};

}  // namespace hipplan
