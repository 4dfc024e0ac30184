#include "leases.hpp"

#include <algorithm>
#include <iterator>

#include "this_process.hpp"

namespace hipplan {

lease_book::lease_book() : process_(this_process()) {}

std::uint64_t lease_book::age() const {
  const std::lock_guard lock(mutex_);
  return age_;
}

lease lease_book::take(std::string name, std::uintptr_t address, std::size_t size_bytes, std::uint64_t age,
                       bool by_cpu) {
  // Before the lock, which a thread that a forked child does not have may hold.
  if (this_process() != process_)
    throw lease_refused("'" + name +
                        "' belongs to a layout of the parent process: a forked child cannot use it");
  const std::lock_guard lock(mutex_);
  const auto is_freed = [&](const bar_on& bar) { return !bar.settled && bar.overlaps(address, size_bytes); };
  if (std::ranges::any_of(barred_, is_freed))
    throw lease_refused("'" + name + "' is closed: its memory was freed");
  const auto was_freed = [&](const bar_on& bar) {
    return bar.settled && age <= bar.against && bar.overlaps(address, size_bytes);
  };
  if (std::ranges::any_of(barred_, was_freed))
    throw lease_refused(
        "memory of '" + name +
        "' was freed since this was taken from the layout; if it is still there, take layout['" + name +
        "'] again");
  out_.push_back({std::move(name), address, size_bytes, by_cpu});
  return {shared_from_this(), std::prev(out_.end())};
}

std::vector<leased> lease_book::overlapping(std::uintptr_t address, std::size_t size_bytes) const {
  const std::lock_guard lock(mutex_);
  std::vector<leased> overlapping;
  for (const auto& entry : out_) {
    if (entry.overlaps(address, size_bytes)) overlapping.push_back(entry);
  }
  return overlapping;
}

std::vector<leased> lease_book::bar(std::uintptr_t address, std::size_t size_bytes, bool force,
                                    bool spares_devices) {
  const std::lock_guard lock(mutex_);
  std::vector<leased> overlapping;
  for (const auto& entry : out_) {
    const bool counts = entry.by_cpu || !spares_devices;
    if (counts && entry.overlaps(address, size_bytes)) overlapping.push_back(entry);
  }
  if (overlapping.empty() || force) barred_.push_back({address, size_bytes, age_, false});
  return overlapping;
}

void lease_book::unbar(std::uintptr_t address, std::size_t size_bytes) {
  const std::lock_guard lock(mutex_);
  for (auto at = barred_.rbegin(); at != barred_.rend(); ++at) {
    if (!at->settled && at->address == address && at->size_bytes == size_bytes) {
      barred_.erase(std::next(at).base());
      return;
    }
  }
}

void lease_book::settle() noexcept {
  const std::lock_guard lock(mutex_);
  const auto is_covered = [&](const bar_on& old) {
    return std::ranges::any_of(barred_, [&](const auto& bar) { return !bar.settled && bar.covers(old); });
  };
  if (std::ranges::all_of(barred_, &bar_on::settled)) return;
  // Keeps one bar for an address at which memory is made and freed again and again, not one for each time.
  for (auto& bar : barred_) bar.replaced = bar.settled && is_covered(bar);
  std::erase_if(barred_, [](const auto& bar) { return bar.replaced; });
  for (auto& bar : barred_) {
    if (!bar.settled) bar.against = age_;
    bar.settled = true;
  }
  ++age_;
}

std::size_t lease_book::size() const {
  const std::lock_guard lock(mutex_);
  return out_.size();
}

void lease_book::end_lease(std::list<leased>::iterator which) noexcept {
  // In a forked child the book is the parent's, and a thread that the child does not have may hold the lock.
  if (this_process() != process_) return;
  const std::lock_guard lock(mutex_);
  out_.erase(which);
}

}  // namespace hipplan
