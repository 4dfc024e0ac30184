// The copies of a pool's bytes while it sleeps: pinned memory, which is freed behind the caller.
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
}

/// Also a place for it among those that are freed: free_copies() allocates nothing.
std::shared_ptr<freed_behind> growing_pool::room_for_copies() {
  behind_.reserve(behind_.size() + 1);
  return std::make_shared<freed_behind>(runtime_, chunks_.size());
}

void growing_pool::free_copies(std::shared_ptr<freed_behind> behind) noexcept {
  for (auto& [offset, each] : chunks_) {
    if (!each.copy) continue;
    behind->take(std::move(*each.copy));
    each.copy.reset();
  }
  if (behind->empty()) return;
  behind_.push_back(behind);
  freed_behind::begin(behind);
  const std::lock_guard lock(mutex_);
  saved_bytes_ = 0;
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
