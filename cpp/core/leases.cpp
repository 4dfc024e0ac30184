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
  const auto has_part = [&](const bar_on& bar) { return bar.overlaps(address, size_bytes); };
  if (std::ranges::any_of(barred_, has_part))
    throw lease_refused("'" + name + "' is closed: its memory was freed");
  const auto later = std::ranges::lower_bound(freed_, age, {}, &bar_on::against);
  if (std::any_of(later, freed_.end(), has_part))
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
  if (!overlapping.empty() && !force) return overlapping;
  // Room, so that settle() allocates nothing.
  const auto needed = freed_.size() + barred_.size() + 1;
  if (freed_.capacity() < needed) freed_.reserve(std::max(needed, 2 * freed_.capacity()));
  barred_.push_back({address, size_bytes});
  return overlapping;
}

void lease_book::unbar(std::uintptr_t address, std::size_t size_bytes) {
  const std::lock_guard lock(mutex_);
  for (auto at = barred_.rbegin(); at != barred_.rend(); ++at) {
    if (at->address == address && at->size_bytes == size_bytes) {
      barred_.erase(std::next(at).base());
      return;
    }
  }
}

void lease_book::settle() noexcept {
  const std::lock_guard lock(mutex_);
  if (barred_.empty()) return;
  // Keeps one bar for an address at which memory is made and freed again and again, not one for each time.
  std::ranges::sort(barred_, {}, &bar_on::address);
  std::erase_if(freed_, [&](const bar_on& old) {
    const auto after = std::ranges::upper_bound(barred_, old.address, {}, &bar_on::address);
    return after != barred_.begin() && std::prev(after)->covers(old);
  });
  for (const auto& bar : barred_) freed_.push_back({bar.address, bar.size_bytes, age_});
  barred_.clear();
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
