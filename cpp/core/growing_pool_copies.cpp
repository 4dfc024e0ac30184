// The copies of a pool's bytes while it sleeps: pinned memory, which is freed behind the caller, and the
// views of it.
#include <tuple>
#include <utility>

#include "growing_pool.hpp"
#include "transfer.hpp"

namespace hipplan {

void growing_pool::save(chunk_map::value_type& what) {
  auto& [offset, from] = what;
  if (!from.copy) {
    from.copy = std::make_unique<pinned_buffer>(*runtime_, memory_.name, from.size_bytes);
    from.copy->make(memory_.device, hip::hipHostMallocPortable, -1);
  }
  copy(*runtime_, from.copy->address(), range_.base + offset, from.size_bytes);
  from.copied_at = mark();  // what is taken from here on is not in it
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
  if (!of_chunk.copy || what.taken_at > of_chunk.copied_at) return 0;
  return of_chunk.copy->address() + (at - offset);
}

/// Also a place for it among those that are freed: free_copies() allocates nothing.
std::shared_ptr<freed_behind> growing_pool::room_for_copies() {
  behind_.reserve(behind_.size() + 1);
  return std::make_shared<freed_behind>(runtime_, chunks_.size());
}

void growing_pool::free_copies(const std::shared_ptr<freed_behind>& behind) noexcept {
  std::size_t left_bytes = 0;
  for (auto& [offset, each] : chunks_) {
    if (!each.copy) continue;
    if (has_viewed_copy(each)) {
      left_bytes += each.size_bytes;
      continue;
    }
    behind->take(std::move(*each.copy));
    each.copy.reset();
  }
  if (!behind->empty()) {
    behind_.push_back(behind);
    freed_behind::begin(behind);
  }
  const std::lock_guard lock(mutex_);
  saved_bytes_ = left_bytes;
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
