// Sleep and wake of a pool, each in two halves. No step loses bytes: they are in the device's memory until
// the copies are complete, and in the copies until they are in the device's memory again.
#include <exception>
#include <optional>
#include <string_view>
#include <utility>

#include "growing_pool.hpp"
#include "leak_log.hpp"
#include "scoped_device.hpp"
#include "transfer.hpp"
#include "with_memory.hpp"

namespace hipplan {

void growing_pool::begin_sleep(bool keep_bytes, undo_report& report) {
  const std::lock_guard turn(change_);
  {
    const std::lock_guard lock(mutex_);
    require(state::stopped, "sleep");
  }
  // Only a change that has its turn touches chunks of a stopped pool.
  begun next{true, keep_bytes, room_for_copies(), {}};
  next.made.reserve(chunks_.size());
  const scoped_device current(*runtime_, memory_.device);
  try {
    if (keep_bytes) save(next.made);
    for (auto& [offset, each] : chunks_) unmap(each);
  } catch (const std::exception&) {
    map_again(report);
    free_copies_of(next.made, next.behind);
    throw;
  }
  const std::lock_guard lock(mutex_);
  begun_ = std::move(next);
}

void growing_pool::begin_wake(undo_report& report) {
  const std::lock_guard turn(change_);
  {
    const std::lock_guard lock(mutex_);
    require(state::asleep, "wake");
  }
  report_behind(report);
  begun next{false, true, room_for_copies(), {}};
  next.made.reserve(chunks_.size());
  const scoped_device current(*runtime_, memory_.device);
  try {
    for (auto& [offset, each] : chunks_) {
      if (each.pieces.empty()) {
        auto fresh = made(offset, each.size_bytes);
        if (each.copy) copy(*runtime_, range_.base + offset, each.copy->address(), each.size_bytes);
        each.pieces.swap(fresh);
        next.made.push_back(&each);
      }
      for (auto& [memory, place] : each.pieces) place.restore(memory, memory_.rights);
    }
  } catch (const std::exception&) {
    free_woken(next.made, report);
    throw;
  }
  const std::lock_guard lock(mutex_);
  mapped_bytes_ = bytes_of_mapped();
  state_ = state::stopped;
  begun_ = std::move(next);
}

void growing_pool::commit(bool retain, undo_report& report) noexcept {
  if (in_forked_child()) return;
  const std::lock_guard turn(change_);
  const auto done = take_begun();
  if (!done) return;  // it was closed meanwhile
  if (done->is_sleep) {
    for (auto& [offset, each] : chunks_) {
      for (auto& [memory, place] : each.pieces) free_owned(memory, report);
      each.pieces.clear();
    }
  }
  {
    const std::lock_guard lock(mutex_);
    state_ = done->is_sleep ? state::asleep : state::open;
    saved_bytes_ = bytes_of_copies();
    mapped_bytes_ = bytes_of_mapped();
  }
  if (done->is_sleep ? !done->keeps_bytes : !retain) free_copies(done->behind);
}

void growing_pool::undo(undo_report& report) noexcept {
  if (in_forked_child()) return;
  const std::lock_guard turn(change_);
  const auto undone = take_begun();
  if (!undone) return;
  if (undone->is_sleep) {
    map_again(report);
    free_copies_of(undone->made, undone->behind);
    return;
  }
  free_woken(undone->made, report);
  const std::lock_guard lock(mutex_);
  state_ = state::asleep;
}

std::optional<growing_pool::begun> growing_pool::take_begun() noexcept {
  const std::lock_guard lock(mutex_);
  return std::exchange(begun_, std::nullopt);
}

std::size_t growing_pool::bytes_of_mapped() const noexcept {
  std::size_t out = 0;
  for (const auto& [offset, each] : chunks_) out += each.pieces.empty() ? 0 : each.size_bytes;
  return out;
}

/// Throws hip_error; then some of it may be unmapped.
void growing_pool::unmap(chunk& what) {
  for (auto& [memory, place] : what.pieces) {
    if (!place.empty()) place.unmap_for_restore();
  }
}

/// For a sleep that does not happen. Stops at what cannot be mapped: the pool is asleep then.
void growing_pool::map_again(undo_report& report) noexcept {
  const piece* at = nullptr;
  try {
    const scoped_device current(*runtime_, memory_.device);
    for (auto& [offset, each] : chunks_) {
      for (auto& what : each.pieces) {
        at = &what;
        with_memory([&] { what.place.restore(what.memory, memory_.rights); });
      }
    }
    return;
  } catch (const hip::hip_error& error) {
    try {
      const auto identity = at ? at->place.identify() : "device " + std::to_string(memory_.device.value);
      report.leaks.push_back({memory_.name, identity, error, true});
    } catch (const std::bad_alloc&) {
      report_leak(std::string_view(error.what()));
    }
  } catch (const std::exception& error) {
    report_leak(std::string_view(error.what()));
  }
  const std::lock_guard lock(mutex_);
  state_ = state::asleep;
}

/// Frees the memory that a wake has made, and whose bytes are in copies or are any. What cannot be unmapped
/// keeps its memory and its bytes.
void growing_pool::free_woken(const std::vector<chunk*>& woken, undo_report& report) noexcept {
  for (auto* const each : woken) {
    try {
      unmap(*each);
    } catch (const std::exception&) {
      continue;
    }
    for (auto& [memory, place] : each->pieces) free_owned(memory, report);
    each->pieces.clear();
  }
  const std::lock_guard lock(mutex_);
  mapped_bytes_ = bytes_of_mapped();
}

}  // namespace hipplan
