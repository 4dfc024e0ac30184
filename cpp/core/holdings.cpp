#include "holdings.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <new>
#include <utility>

#include "change.hpp"
#include "with_memory.hpp"

namespace hipplan {
namespace {

/// Every owner of a snapshot, in the order of creation.
retirement all_of(const snapshot& what) {
  retirement out{{}, what.segments()};
  out.owners.reserve(what.size());
  for (auto* const owner : what.table()) {
    if (owner) out.owners.push_back(owner);
  }
  if (!what.in_order()) std::ranges::sort(out.owners, {}, &held::made);
  return out;
}

/// Its owners are never destroyed: their destructors would call the driver.
void never_destroy(snapshot_ptr&& what) noexcept {
  alignas(snapshot_ptr) std::array<std::byte, sizeof(snapshot_ptr)> place{};
  new (place.data()) snapshot_ptr(std::move(what));
}

}  // namespace

holdings::holdings(std::shared_ptr<retired> retired_objects)
    : state_(retired_objects->state()), retired_(std::move(retired_objects)) {
  current_ = std::make_shared<snapshot>(state_, std::vector<held*>{}, std::vector<segment_ptr>{}, true);
}

holdings::~holdings() {
  if (!state_->runtime->may_call()) return;
  try {
    if (!closed_) {
      with_memory([&] {
        const std::lock_guard lock(state_->mutex);
        (void)retire_all(retired::spared::all, true);
      });
      closed_ = true;
    }
    with_memory([&] {
      if (retired_->any() && leases()->size() != 0) waiting::add(retired_);
    });
  } catch (
      const std::bad_alloc&) {  // what has views must not be freed, and what could free the rest is not known
    if (!closed_) {
      report_kept(current_->table());
      never_destroy(std::move(current_));
    }
    retired_->keep_all();
  }
}

snapshot_ptr holdings::current() const {
  const auto lock = state_->locked();
  return current_;
}

std::size_t holdings::spare_bytes() const {
  const auto lock = state_->locked();
  std::size_t sum = 0;
  for (const auto* const owner : spares_.owners) {
    const auto* const memory = std::get_if<allocation>(&owner->what);
    if (memory && !memory->empty()) sum += memory->size_bytes();
  }
  return sum;
}

bool holdings::take_spare(allocation& wanted) noexcept {
  auto& all = spares_.owners;
  const auto at = std::ranges::find_if(all.rbegin(), all.rend(), [&](const held* owner) {
    return std::get_if<allocation>(&owner->what)->is_like(wanted);
  });
  if (at == all.rend()) return false;
  wanted.take(std::move(*std::get_if<allocation>(&(*at)->what)));
  (*at)->clear();
  all.erase(std::next(at).base());
  return true;
}

std::vector<leased> holdings::close(bool force) {
  if (state_->in_forked_child()) {
    closed_ = true;
    return {};
  }
  std::vector<binding> bound;  // destroyed after the lock
  const auto lock = state_->locked();
  if (closed_) return {};
  if (auto* const undecided = change_.load()) bound = undecided->roll_back_locked();
  auto in_use = retire_all(retired::spared::leased, force);
  closed_ = force || in_use.empty();
  return in_use;
}

std::vector<leased> holdings::retire_all(retired::spared spared, bool force) {
  auto all = all_of(*current_);
  retired_->make_room_locked();
  auto in_use = leases()->bar(0, std::numeric_limits<std::size_t>::max(), force);
  if (!in_use.empty() && !force) return in_use;
  retired_->spare_locked(spared);
  retired_->add_last_locked(std::move(all));
  retired_->add_last_locked(std::exchange(spares_, {}));
  return in_use;
}

}  // namespace hipplan
