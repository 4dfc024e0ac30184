// The copies of a pool's bytes while it sleeps: pinned memory, which is freed behind the caller, and the
// views of it.
#include <tuple>
#include <utility>

#include "growing_pool.hpp"
#include "transfer.hpp"

namespace hipplan {

/// made: gets the chunks that had no copy, before anything is copied there; it has room.
void growing_pool::save(std::vector<chunk*>& made) {
  for (auto& [offset, from] : chunks_) {
    if (!from.copy) {
      auto fresh = std::make_unique<pinned_buffer>(*runtime_, memory_.name, from.size_bytes);
      fresh->make(memory_.device, hip::hipHostMallocPortable, -1);
      from.copy = std::move(fresh);
      made.push_back(&from);
    }
    from.copied_at.reset();
    copy(*runtime_, from.copy->address(), range_.base + offset, from.size_bytes);
    from.copied_at = mark();  // what is taken from here on is not in it
  }
}

bool growing_pool::has_viewed_copy(const chunk& what) const noexcept try {
  return what.copy && !book_->overlapping(what.copy->address(), what.copy->size_bytes()).empty();
} catch (const std::bad_alloc&) {
  return true;  // it is unknown
}

std::uintptr_t growing_pool::copy_of(std::uintptr_t address, std::size_t size_bytes) const {
  const std::lock_guard turn(change_);
  const std::lock_guard lock(mutex_);
  if (address < range_.base || address >= range_.base + range_.size_bytes) return 0;
  const auto at = address - range_.base;
  const auto after = blocks_.upper_bound(at);
  if (after == blocks_.begin()) return 0;
  const auto& [begin, what] = *std::prev(after);
  const auto home = chunks_.find(what.chunk);
  if (at + size_bytes > begin + what.size_bytes || home == chunks_.end()) return 0;
  const auto& [offset, of_chunk] = *home;
  if (!of_chunk.copy || !of_chunk.copied_at || what.taken_at > *of_chunk.copied_at) return 0;
  return of_chunk.copy->address() + (at - offset);
}

/// Also a place for it among those that are freed: free_copies() allocates nothing.
std::shared_ptr<freed_behind> growing_pool::room_for_copies() {
  behind_.reserve(behind_.size() + 1);
  return std::make_shared<freed_behind>(runtime_, chunks_.size());
}

void growing_pool::free_copies(const std::shared_ptr<freed_behind>& behind) noexcept {
  for (auto& [offset, each] : chunks_) take_copy(each, *behind);
  begin_to_free(behind);
}

void growing_pool::free_copies_of(const std::vector<chunk*>& some,
                                  const std::shared_ptr<freed_behind>& behind) noexcept {
  for (auto* const each : some) take_copy(*each, *behind);
  begin_to_free(behind);
}

/// Leaves one that is viewed.
void growing_pool::take_copy(chunk& of, freed_behind& to) noexcept {
  if (!of.copy || has_viewed_copy(of)) return;
  to.take(std::move(*of.copy));
  of.copy.reset();
}

void growing_pool::begin_to_free(const std::shared_ptr<freed_behind>& behind) noexcept {
  if (!behind->empty()) {
    behind_.push_back(behind);
    freed_behind::begin(behind);
  }
  const std::lock_guard lock(mutex_);
  saved_bytes_ = bytes_of_copies();
}

std::size_t growing_pool::bytes_of_copies() const noexcept {
  std::size_t out = 0;
  for (const auto& [offset, each] : chunks_) out += each.copy ? each.size_bytes : 0;
  return out;
}

void growing_pool::wait_behind(undo_report& report) {
  for (const auto& work : behind_)
    std::ignore = work->wait_until(std::chrono::steady_clock::time_point::max());
  report_behind(report);
}

/// What has ended: adds what could not be freed to the report.
void growing_pool::report_behind(undo_report& report) {
  for (auto at = behind_.begin(); at != behind_.end();) {
    if ((*at)->wait_until(std::chrono::steady_clock::time_point::min())) {
      (*at)->report_into(report);
      at = behind_.erase(at);
    } else {
      ++at;
    }
  }
}

}  // namespace hipplan
