// What a decided layout owns: an immutable table from slots to owners.
//
// Snapshots share their owners: what stays in a change is in the table of the old one and in that of the new
// one. An owner is given back by name (retired.hpp) and is empty afterwards, also in an old snapshot that
// somebody still has.
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

/// What all snapshots and changes of one layout have in common.
struct household {
  explicit household(runtime_ptr of) : runtime(std::move(of)) {}
  const runtime_ptr runtime;
  std::mutex mutex;                  ///< of all its owners
  std::atomic<bool> damaged{false};  ///< something could not be restored

  /// This is a forked child: all of it is the parent's. A thread of the parent's may have had the mutex,
  /// which nobody gives back in the child.
  [[nodiscard]] bool is_parents() const noexcept { return process_ != this_process(); }
  /// Throws std::runtime_error in a forked child.
  [[nodiscard]] std::unique_lock<std::mutex> locked() {
    if (is_parents())
      throw std::runtime_error("a layout of the parent process: a forked child cannot use it");
    return std::unique_lock(mutex);
  }

 private:
  const unsigned process_ = this_process();
};
using household_ptr = std::shared_ptr<household>;

class snapshot {
 public:
  /// in_order: whether the table is in the order of making.
  snapshot(household_ptr home, std::vector<held*> table, std::vector<segment_ptr> segments, bool in_order)
      : home_(std::move(home)),
        table_(std::move(table)),
        segments_(std::move(segments)),
        in_order_(in_order) {}

  [[nodiscard]] std::size_t size() const noexcept { return table_.size(); }
  [[nodiscard]] bool in_order() const noexcept { return in_order_; }
  [[nodiscard]] const std::vector<held*>& table() const noexcept { return table_; }
  [[nodiscard]] const std::vector<segment_ptr>& segments() const noexcept { return segments_; }
  [[nodiscard]] hip::runtime& runtime() const noexcept { return *home_->runtime; }

  // Each throws std::out_of_range where the slot is empty, was given back, or is of another kind, and
  // std::runtime_error in a forked child.
  /// Where an object begins; of a range its aligned base.
  [[nodiscard]] std::uintptr_t address(slot_id slot) const;
  /// Of a range from its aligned base on.
  [[nodiscard]] std::size_t size_bytes(slot_id slot) const;
  [[nodiscard]] std::uintptr_t handle(slot_id allocation) const;
  [[nodiscard]] std::uintptr_t stream_handle(slot_id stream) const;
  /// See allocation::share().
  [[nodiscard]] int share(slot_id allocation) const;
  /// Whether an allocation was exported, or is imported: others may have it mapped.
  [[nodiscard]] bool shared(slot_id allocation) const;
  /// Whether something is there.
  [[nodiscard]] bool has(slot_id slot) const;

 private:
  template <class Use>
  auto with(slot_id slot, Use use) const;

  household_ptr home_;
  std::vector<held*> table_;           ///< null: nothing was made, as of a peer link that was on already
  std::vector<segment_ptr> segments_;  ///< that the owners are in
  bool in_order_;
};
using snapshot_ptr = std::shared_ptr<const snapshot>;

}  // namespace hipplan
