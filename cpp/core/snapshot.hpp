// What a decided layout owns: an immutable table from slots to owners.
//
// Snapshots share their owners: an object that stays in a change is in the tables of the old and of the new
// snapshot. A freed owner (retired.hpp) is empty, also in an old snapshot that other code still has.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "held.hpp"
#include "this_process.hpp"

namespace hipplan {

/// The place of an object in a program, and in the table of its snapshot.
using slot_id = std::size_t;
inline constexpr slot_id no_slot = static_cast<slot_id>(-1);

/// What all snapshots and changes of one layout share.
struct layout_state {
  layout_state(runtime_ptr of, plan_name called) : runtime(std::move(of)), name(std::move(called)) {}
  const runtime_ptr runtime;
  const plan_name name;              ///< the plan's
  std::mutex mutex;                  ///< protects all the layout's owners
  std::atomic<bool> damaged{false};  ///< an object could not be restored

  /// Whether this is a forked child: everything belongs to the parent. A thread of the parent may have held
  /// the mutex, and no thread unlocks it in the child.
  [[nodiscard]] bool in_forked_child() const noexcept { return process_ != this_process(); }
  /// Throws std::runtime_error in a forked child.
  [[nodiscard]] std::unique_lock<std::mutex> locked() {
    if (in_forked_child())
      throw std::runtime_error("a layout of the parent process: a forked child cannot use it");
    return std::unique_lock(mutex);
  }

 private:
  const unsigned process_ = this_process();
};
using layout_state_ptr = std::shared_ptr<layout_state>;

class snapshot {
 public:
  /// in_order: whether the table is in the order of creation.
  snapshot(layout_state_ptr state, std::vector<held*> table, std::vector<segment_ptr> segments, bool in_order)
      : state_(std::move(state)),
        table_(std::move(table)),
        segments_(std::move(segments)),
        in_order_(in_order) {}

  [[nodiscard]] std::size_t size() const noexcept { return table_.size(); }
  [[nodiscard]] bool in_order() const noexcept { return in_order_; }
  [[nodiscard]] const std::vector<held*>& table() const noexcept { return table_; }
  [[nodiscard]] const std::vector<segment_ptr>& segments() const noexcept { return segments_; }
  [[nodiscard]] hip::runtime& runtime() const noexcept { return *state_->runtime; }

  // Each throws std::out_of_range if the slot is empty, was freed, or is of another kind, and
  // std::runtime_error in a forked child.
  /// An object's first address; a range's aligned base.
  [[nodiscard]] std::uintptr_t address(slot_id slot) const;
  /// A range's size counts from its aligned base.
  [[nodiscard]] std::size_t size_bytes(slot_id slot) const;
  [[nodiscard]] std::uintptr_t handle(slot_id allocation) const;
  [[nodiscard]] std::uintptr_t stream_handle(slot_id stream) const;
  [[nodiscard]] range_place place(slot_id range) const;
  /// See allocation::share().
  [[nodiscard]] int share(slot_id allocation) const;
  /// Whether an allocation was exported or imported: other processes may have it mapped.
  [[nodiscard]] bool shared(slot_id allocation) const;
  /// Whether the slot holds an object.
  [[nodiscard]] bool has(slot_id slot) const;

 private:
  template <class Use>
  auto with(slot_id slot, Use use) const;

  layout_state_ptr state_;
  std::vector<held*> table_;  ///< null: nothing was made, as for a peer link that was already enabled
  std::vector<segment_ptr> segments_;  ///< the memory of the owners
  bool in_order_;
};
using snapshot_ptr = std::shared_ptr<const snapshot>;

}  // namespace hipplan
