// What a commit neither keeps in its slot nor frees at once: pinned memory that is freed behind the caller,
// and memory that the layout keeps for new allocations like it.
#include <algorithm>
#include <stdexcept>

#include "change.hpp"

namespace hipplan {

void change::choose_what_is_freed_behind() {
  if (plan_.behind.empty()) return;
  const auto& old = old_snapshot_->table();
  std::vector<described> contents;
  for (const auto slot : plan_.behind) {
    auto* const owner = slot < old.size() ? old[slot] : nullptr;
    if (!owner || !std::holds_alternative<pinned_buffer>(owner->what) || !owner->full())
      throw std::out_of_range("what is freed behind the change is no pinned buffer");
    const auto is_in = [owner](const auto& some) { return std::ranges::find(some, owner) != some.end(); };
    if (is_in(table_) || is_in(owners_behind_))
      throw std::out_of_range("what is freed behind the change stays, or is freed twice");
    owners_behind_.push_back(owner);
    describe(*owner, contents);
  }
  behind_ = std::make_shared<freed_behind>(state_->runtime, owners_behind_.size(), std::move(contents));
}

/// Makes room for them, so that a commit allocates nothing.
void change::choose_spares() {
  const auto& old = old_snapshot_->table();
  for (const auto slot : plan_.spared) {
    auto* const owner = slot < old.size() ? old[slot] : nullptr;
    if (!owner || !std::holds_alternative<allocation>(owner->what))
      throw std::out_of_range("what is to be spare is no allocation");
    if (std::ranges::find(replaced_owners_.owners, owner) == replaced_owners_.owners.end())
      throw std::out_of_range("what is to be spare stays");
    spared_.push_back(owner);
  }
  if (spared_.empty()) return;
  auto& all = holdings_->spares_;
  all.owners.reserve(all.owners.size() + spared_.size());
  all.segments.reserve(all.segments.size() + segments_.size());
}

void change::keep_spares() noexcept {
  auto& all = holdings_->spares_;
  if (plan_.frees_spares) holdings_->retired_->add_locked(std::exchange(all, {}));
  if (spared_.empty()) return;
  all.owners.insert(all.owners.end(), spared_.begin(), spared_.end());
  for (const auto& part : segments_) {
    if (std::ranges::find(all.segments, part) == all.segments.end()) all.segments.push_back(part);
  }
  std::erase_if(all.segments, [&](const auto& part) {
    return std::ranges::none_of(all.owners, [&](const held* owner) { return part->has(*owner); });
  });
  auto& gone = replaced_owners_.owners;
  std::ranges::sort(spared_);
  std::erase_if(gone, [&](held* owner) { return std::ranges::binary_search(spared_, owner); });
}

}  // namespace hipplan
