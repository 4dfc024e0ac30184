#include "growing_pool.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "growing_pool_slots.hpp"
#include "queries.hpp"
#include "scoped_device.hpp"

namespace hipplan {
namespace {

constexpr std::size_t round_up(std::size_t size_bytes, std::size_t step) {
  return (size_bytes + step - 1) / step * step;
}

}  // namespace

growing_pool::growing_pool(runtime_ptr runtime, const snapshot& in, slot_id range, pool_memory memory,
                           std::shared_ptr<lease_book> book)
    : runtime_(std::move(runtime)),
      memory_(std::move(memory)),
      range_(in.place(range)),
      book_(std::move(book)),
      age_(book_->age()),
      addresses_(range_.size_bytes) {}

std::shared_ptr<growing_pool> growing_pool::create(runtime_ptr runtime, const snapshot& in, slot_id range,
                                                   pool_memory memory, std::shared_ptr<lease_book> book) {
  std::shared_ptr<growing_pool> made(
      new growing_pool(std::move(runtime), in, range, std::move(memory), std::move(book)));
  growing_pool_slots::take_one([&](int slot) {
    made->slot_ = slot;
    return made;
  });
  return made;
}

std::vector<std::shared_ptr<growing_pool>> growing_pool::left_over() {
  auto out = growing_pool_slots::taken();
  std::erase_if(out, [](const auto& pool) { return pool->in_forked_child() || !pool->is_left_over(); });
  return out;
}

void* growing_pool::take(std::size_t size_bytes, int device) noexcept try {
  if (in_forked_child() || device != memory_.device.value || size_bytes == 0) return nullptr;
  const std::lock_guard lock(mutex_);
  if (state_ != state::open) return nullptr;
  std::size_t begin = 0;
  auto* home = chunk_with_room(size_bytes, begin);
  if (!home) home = add_chunk(size_bytes, begin);
  const auto within = home ? home->room.take(size_bytes) : std::nullopt;
  if (!within) return nullptr;
  const auto at = begin + *within;
  try {
    blocks_.emplace(
        at, block{book_->take(memory_.name, range_.base + at, size_bytes, age_), begin, size_bytes, mark_});
  } catch (...) {
    home->room.free_block(*within);
    throw;
  }
  return reinterpret_cast<void*>(range_.base + at);
} catch (const std::exception&) {
  return nullptr;
}

growing_pool::chunk* growing_pool::chunk_with_room(std::size_t size_bytes, std::size_t& offset) noexcept {
  for (auto& [at, each] : chunks_) {
    if (each.size_bytes - each.room.used_bytes() < size_bytes) continue;  // most are full: this is quicker
    if (each.room.largest_free_bytes() < size_bytes) continue;
    offset = at;
    return &each;
  }
  return nullptr;
}

growing_pool::chunk* growing_pool::add_chunk(std::size_t size_bytes, std::size_t& offset) {
  // HIP 7.0 to 7.2 take rights only for pieces that are equal (range_pieces.hpp): a large chunk is several.
  const auto step = mapping::is_plain(*runtime_) ? memory_.step_bytes : memory_.chunk_bytes;
  if (size_bytes > range_.size_bytes) {
    return refuse("it reserves " + std::to_string(range_.size_bytes) + " bytes of addresses");
  }
  const auto size = std::max(memory_.chunk_bytes, round_up(size_bytes, step));
  const auto place = addresses_.take(size);
  if (!place) {
    return refuse("no " + std::to_string(size) + " bytes of the " + std::to_string(range_.size_bytes) +
                  " that it reserves are left in one piece");
  }
  try {
    const auto [at, is_new] = chunks_.try_emplace(*place, chunk{size, suballocator(size), {}, nullptr});
    try {
      at->second.pieces = made(*place, size);
    } catch (...) {
      chunks_.erase(at);
      throw;
    }
    mapped_bytes_ += size;
    offset = *place;
    return &at->second;
  } catch (const std::exception& error) {
    addresses_.free_block(*place);
    return refuse(error.what());
  }
}

std::nullptr_t growing_pool::refuse(std::string why) {
  ++refused_;
  why_full_ = std::move(why);
  return nullptr;
}

std::vector<growing_pool::piece> growing_pool::made(std::size_t offset, std::size_t size_bytes) const {
  const scoped_device current(*runtime_, memory_.device);
  const auto each = mapping::is_plain(*runtime_) ? size_bytes : memory_.chunk_bytes;
  const plan_name name(memory_.name);
  std::vector<piece> out;
  out.reserve(size_bytes / each);
  for (auto at = offset; at < offset + size_bytes; at += each) {
    auto& [memory, place] = out.emplace_back(piece{allocation(*runtime_, name, each, memory_.properties),
                                                   mapping(*runtime_, name, range_, at, each)});
    memory.make();
    place.make(memory);
    place.set_access(memory_.rights, false);
  }
  return out;
}

void growing_pool::free_block(void* pointer) noexcept {
  if (in_forked_child()) return;
  {
    const std::lock_guard lock(mutex_);
    const auto at = blocks_.find(reinterpret_cast<std::uintptr_t>(pointer) - range_.base);
    if (at == blocks_.end() || at->second.freed_at) return;
    if (!unmapped_) {
      at->second.freed_at = mark_;
      return;
    }
    blocks_.erase(at);  // its memory is gone: no device can use it
  }
  leave_slot_if_done();
}

void growing_pool::stop() {
  const std::lock_guard turn(change_);
  const std::lock_guard lock(mutex_);
  require(state::open, "stop");
  state_ = state::stopped;
}

void growing_pool::resume() noexcept {
  const std::lock_guard lock(mutex_);
  if (state_ == state::stopped && !begun_) state_ = state::open;
}

std::uint64_t growing_pool::mark() noexcept {
  const std::lock_guard lock(mutex_);
  return mark_++;
}

void growing_pool::settle(std::uint64_t mark) noexcept {
  for (auto at = blocks_.begin(); at != blocks_.end();) {
    const auto& what = at->second;
    if (!what.freed_at || *what.freed_at > mark) {
      ++at;
      continue;
    }
    chunks_.find(what.chunk)->second.room.free_block(at->first - what.chunk);
    at = blocks_.erase(at);
  }
}

void growing_pool::free_chunks(std::uint64_t mark, undo_report& report) {
  if (in_forked_child()) return;
  const std::lock_guard turn(change_);
  if (begun_) return;
  report_behind(report);
  std::vector<chunk_map::node_type> going;
  {
    const std::lock_guard lock(mutex_);
    settle(mark);
    going.reserve(chunks_.size());
    for (auto at = chunks_.begin(); at != chunks_.end();) {
      const auto here = at++;
      if (here->second.room.blocks() != 0 || has_viewed_copy(here->second)) continue;
      if (!here->second.pieces.empty()) mapped_bytes_ -= here->second.size_bytes;
      if (here->second.copy) saved_bytes_ -= here->second.size_bytes;
      going.push_back(chunks_.extract(here));
    }
  }
  for (auto& node : going) free_chunk(node.key(), node.mapped(), report);
  leave_slot_if_done();
}

void growing_pool::free_chunk(std::size_t offset, chunk& what, undo_report& report) {
  bool is_unmapped = true;
  for (auto& [memory, place] : what.pieces) {
    const auto known = report.leaks.size();
    free_owned(place, report);
    is_unmapped = is_unmapped && report.leaks.size() == known && !place.has_unreported_failure();
    free_owned(memory, report);
  }
  if (what.copy) free_owned(*what.copy, report);
  if (!is_unmapped) return;  // nothing can be mapped there any more
  const std::lock_guard lock(mutex_);
  addresses_.free_block(offset);
}

void growing_pool::close(bool unmaps, undo_report& report) {
  if (in_forked_child()) return;
  const std::lock_guard turn(change_);
  const auto behind = room_for_copies();
  {
    const std::lock_guard lock(mutex_);
    state_ = state::closed;
    begun_.reset();
    if (!unmaps) return;
    unmapped_ = true;
    std::erase_if(blocks_, [](const auto& each) { return each.second.freed_at.has_value(); });
    mapped_bytes_ = 0;
  }
  for (auto& [offset, each] : chunks_) {
    for (auto& [memory, place] : each.pieces) {
      free_owned(place, report);
      free_owned(memory, report);
    }
    each.pieces.clear();
  }
  free_copies(behind);
  wait_behind(report);
  leave_slot_if_done();
}

void growing_pool::abandon() noexcept {
  undo_report report;
  const auto failed = [](const std::exception& error) { report_leak(std::string_view(error.what())); };
  try {
    close(false, report);
    const auto freed_before = mark();
    if (!in_forked_child() && used().chunks != 0) synchronize(*runtime_, memory_.device);
    free_chunks(freed_before, report);
    const std::lock_guard turn(change_);
    wait_behind(report);
  } catch (const std::exception& error) {
    failed(error);
  }
  for (const auto& leak : report.leaks) failed(leak.error);
}

void growing_pool::leave_slot_if_done() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (state_ != state::closed || !blocks_.empty() || (!chunks_.empty() && !unmapped_)) return;
  }
  growing_pool_slots::leave(slot_, weak_from_this().lock());  // which does not throw
}

void growing_pool::require(state wanted, const char* what) const {
  if (state_ == wanted && !begun_) return;
  constexpr std::array<const char*, 4> words{"open", "stopped by another change", "asleep", "closed"};
  throw pool_state_error(std::string("the pool cannot ") + what + ": it is " +
                         words[static_cast<std::size_t>(state_)]);
}

bool growing_pool::is_left_over() const {
  const std::lock_guard lock(mutex_);
  return state_ == state::closed && !unmapped_ &&
         std::ranges::all_of(blocks_, [](const auto& each) { return each.second.freed_at.has_value(); });
}

growing_pool::state growing_pool::current_state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

growing_pool::usage growing_pool::used() const {
  const std::lock_guard lock(mutex_);
  usage out{range_.size_bytes, mapped_bytes_, 0, saved_bytes_, chunks_.size(), blocks_.size(), refused_, 0};
  for (const auto& [offset, each] : chunks_) {
    out.used_bytes += each.room.used_bytes();
    out.all_chunks_bytes += each.size_bytes;
  }
  return out;
}

std::string growing_pool::why_full() const {
  const std::lock_guard lock(mutex_);
  return why_full_;
}

}  // namespace hipplan
