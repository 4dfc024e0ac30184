#include "suballocator.hpp"

#include <iterator>
#include <limits>

namespace hipplan {

suballocator::suballocator(std::size_t size_bytes) {
  if (const auto usable = size_bytes / alignment_bytes * alignment_bytes) {
    pieces_.emplace(0, piece{usable, false});
    by_size_.emplace(false, usable, 0);
  }
}

std::optional<std::size_t> suballocator::take(std::size_t size_bytes) {
  if (size_bytes == 0 || size_bytes > std::numeric_limits<std::size_t>::max() - alignment_bytes) return {};
  size_bytes = (size_bytes + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
  const auto best = by_size_.lower_bound({false, size_bytes, 0});
  if (best == by_size_.end()) return {};
  const auto [is_out, found_bytes, offset] = *best;
  if (is_out) return {};
  if (const auto rest = found_bytes - size_bytes) {
    pieces new_piece{{offset + size_bytes, {rest, false}}};
    sizes new_size{{false, rest, offset + size_bytes}};
    pieces_.merge(new_piece);  // from here on nothing is allocated
    by_size_.merge(new_size);
  }
  change(pieces_.find(offset), {size_bytes, true});
  ++blocks_;
  used_bytes_ += size_bytes;
  return offset;
}

bool suballocator::free_block(std::size_t offset) noexcept {
  auto which = pieces_.find(offset);
  if (which == pieces_.end() || !which->second.is_out) return false;
  auto size_bytes = which->second.size_bytes;
  --blocks_;
  used_bytes_ -= size_bytes;
  if (const auto behind = std::next(which); behind != pieces_.end() && !behind->second.is_out) {
    size_bytes += behind->second.size_bytes;
    remove(behind);
  }
  if (which != pieces_.begin() && !std::prev(which)->second.is_out) {
    const auto before = std::prev(which);
    size_bytes += before->second.size_bytes;
    remove(which);
    which = before;
  }
  change(which, {size_bytes, false});
  return true;
}

std::size_t suballocator::largest_free_bytes() const noexcept {
  const auto out = by_size_.lower_bound({true, 0, 0});
  return out == by_size_.begin() ? 0 : std::get<1>(*std::prev(out));
}

void suballocator::change(pieces::iterator which, piece to) noexcept {
  auto& [offset, now] = *which;
  auto place = by_size_.extract({now.is_out, now.size_bytes, offset});
  place.value() = {to.is_out, to.size_bytes, offset};
  by_size_.insert(std::move(place));
  now = to;
}

void suballocator::remove(pieces::iterator which) noexcept {
  by_size_.erase({which->second.is_out, which->second.size_bytes, which->first});
  pieces_.erase(which);
}

}  // namespace hipplan
