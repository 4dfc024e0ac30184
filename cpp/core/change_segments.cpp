// The memory of the owners: changes share segments, and later ones leave out those of which nothing is left.
#include <algorithm>
#include <iterator>

#include "change.hpp"

namespace hipplan {
namespace {

/// The most owners for which a segment has room, unless one change needs more. One object that stays keeps
/// its segment, so it should not be large.
constexpr std::size_t most_together = 512;

}  // namespace

/// Chooses the segments of the new snapshot, and one with room for this many owners.
void change::take_segment(std::size_t owners) {
  std::ranges::copy_if(old_snapshot_->segments(), std::back_inserter(segments_),
                       [](const auto& part) { return !part->nothing_left(); });
  segment_ = holdings_->open_;
  if (segment_ && segment_->room() >= owners) return;
  const auto larger = segment_ ? std::min(2 * segment_->owners.size(), most_together) : std::size_t{0};
  segment_ = std::make_shared<segment>(std::max(owners, larger));
}

/// Counts objects that no later snapshot has. some: of this change, or of the old snapshot.
void change::count_gone(std::span<held* const> some) noexcept {
  for (const auto* const owner : some) {
    if (segment_->has(*owner)) {
      ++segment_->gone;
      continue;
    }
    const auto after = std::ranges::upper_bound(segments_, owner->made, {},
                                                [](const auto& part) { return part->owners.front().made; });
    ++(*std::prev(after))->gone;
  }
}

}  // namespace hipplan
