// The copies of a pool's chunks in host memory, and the views of them.
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

}  // namespace hipplan
