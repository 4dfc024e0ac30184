#include "suballocator.hpp"

#include <iterator>
#include <limits>

namespace hipplan {

suballocator::suballocator(std::size_t size_bytes) {
  if (const auto usable = size_bytes / alignment_bytes * alignment_bytes) add_free(0, usable);
}

std::optional<std::size_t> suballocator::take(std::size_t size_bytes) {
  if (size_bytes == 0 || size_bytes > std::numeric_limits<std::size_t>::max() - alignment_bytes) return {};
  size_bytes = (size_bytes + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
  const auto best = by_size_.lower_bound({size_bytes, 0});
  if (best == by_size_.end()) return {};
  const auto [free_bytes, offset] = *best;
  taken_.emplace(offset, size_bytes);  // first: if it throws, nothing is lost
  remove_free(free_.find(offset));
  if (free_bytes > size_bytes) add_free(offset + size_bytes, free_bytes - size_bytes);
  used_bytes_ += size_bytes;
  return offset;
}

bool suballocator::give_back(std::size_t offset) {
  const auto which = taken_.find(offset);
  if (which == taken_.end()) return false;
  auto size_bytes = which->second;
  taken_.erase(which);
  used_bytes_ -= size_bytes;
  const auto behind = free_.lower_bound(offset);
  if (behind != free_.begin()) {
    const auto before = std::prev(behind);
    if (before->first + before->second == offset) {
      offset = before->first;
      size_bytes += before->second;
      remove_free(before);
    }
  }
  if (behind != free_.end() && offset + size_bytes == behind->first) {
    size_bytes += behind->second;
    remove_free(behind);
  }
  add_free(offset, size_bytes);
  return true;
}

void suballocator::add_free(std::size_t offset, std::size_t size_bytes) {
  free_.emplace(offset, size_bytes);
  by_size_.emplace(size_bytes, offset);
}

void suballocator::remove_free(std::map<std::size_t, std::size_t>::iterator which) {
  by_size_.erase({which->second, which->first});
  free_.erase(which);
}

}  // namespace hipplan
