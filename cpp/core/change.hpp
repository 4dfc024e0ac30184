// One change of what a layout owns, from one snapshot to the next: all of it, or nothing.
//
// advance() runs rows: the change owns what they make, and stores the undo of an alteration before its call.
// Then comes one decision: commit() swaps the snapshot, or roll_back() does not. Neither can fail. The losing
// side, old or new, is retired, and one loop frees it, latest first (retired.hpp): so a new mapping is
// unmapped before the old one at its address is restored.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "address_search.hpp"
#include "freed_behind.hpp"
#include "holdings.hpp"
#include "rows.hpp"
#include "scoped_device.hpp"

namespace hipplan {

/// Consecutive objects that stay in a change.
struct kept_objects {
  slot_id to;    ///< of the first of them in the change
  slot_id from;  ///< in the old snapshot
  std::size_t count;
};

/// The input of a change.
struct change_plan {
  row_table_ptr rows;
  std::size_t slots = 0;           ///< of the new snapshot
  std::size_t extra_slots = 0;     ///< after them, for objects that exist only during the change
  std::size_t same_slots = 0;      ///< the first ones of the old snapshot, which stay in their slots
  std::vector<slot_id> renewed;    ///< those of them whose objects are made again, and do not stay
  std::vector<kept_objects> kept;  ///< others that stay
  std::vector<slot_id>
      spared;  ///< old slots of allocations that do not stay, and that the layout keeps as spares
  bool frees_spares = false;  ///< a commit frees the layout's spares that the change has not taken
  std::vector<slot_id>
      behind;  ///< old slots of pinned buffers that do not stay, and are freed behind a commit
  bool timed = false;
};

/// When a row began, on the steady clock, how long it took, and how often its calls were repeated because the
/// driver returned NotReady.
struct row_time {
  std::uint64_t began_ns = 0;
  std::uint64_t ns = 0;
  std::uint64_t retries = 0;
};

class change {
 public:
  /// Throws std::logic_error while another change of the layout is undecided. Everything that needs the
  /// layout's mutex throws std::runtime_error in a forked child.
  change(std::shared_ptr<holdings> of, change_plan plan);
  change(const change&) = delete;
  change& operator=(const change&) = delete;
  /// The last resort: rolls back if undecided, and frees what is retired; failures go to the leak log.
  ~change();

  /// Bars memory that a commit frees from new leases. Returns the leases that are already on it; then nothing
  /// is barred. force: bars it in any case, and returns nothing; existing leases stay. Call it before the
  /// first row that unmaps: it does not see unmapped memory. spares_devices: as of lease_book::bar().
  [[nodiscard]] std::vector<leased> bar(bool force, bool spares_devices = false);

  /// Sets the descriptors and the memory of rows that need them.
  void bind(std::vector<binding> bound);

  using time = std::chrono::steady_clock::time_point;

  /// Runs rows in order up to `end`: at least one, then more until the deadline; but it may stop in the
  /// middle of a search for an address, which the next call continues. gives_up: when a search ends. Throws
  /// at the first failure, of the driver or not; done() counts the rows that succeeded. Throws
  /// std::logic_error if the change is decided, or has failed: then it can only be rolled back.
  void advance(std::size_t end, time until, time gives_up = time::max());
  /// Whether a search for an address is under way.
  [[nodiscard]] bool is_searching() const;
  /// Ends a search; its row is not done.
  void end_search();
  /// Whether the row after the done ones has failed.
  [[nodiscard]] bool failed() const noexcept { return failed_; }
  /// How many rows are done.
  [[nodiscard]] std::size_t done() const noexcept { return done_; }
  /// Only of a done row, in a timed change.
  [[nodiscard]] row_time time_of(std::size_t row) const { return times_.at(row); }
  /// The snapshot that the rows fill, with the extra slots; immutable from the decision on.
  [[nodiscard]] const std::shared_ptr<snapshot>& new_snapshot() const noexcept { return new_snapshot_; }

  /// Decides: the new snapshot becomes the layout's, the rest of the old one is retired. Returns false if the
  /// change was rolled back already. beside(): called at the decision; its result lives until the commit is
  /// complete. It must not fail. Throws std::logic_error if rows are left, and decides nothing; else it
  /// cannot fail.
  template <class Beside>
  bool commit(Beside beside) {
    {
      std::vector<binding> bound;  // destroyed after the lock
      const auto lock = state_->locked();
      if (!undecided()) return committed();
      if (done_ != plan_.rows->rows.size()) throw std::logic_error("not all rows of the change are done");
      const auto lives_until_then = beside();
      bound.swap(bound_);
      commit_locked();
    }
    if (behind_) freed_behind::begin(behind_);
    return true;
  }
  /// Decides: new objects are retired, and so are alterations, which restores what they altered. Does nothing
  /// if the change is decided. In a forked child nothing is retired: all of it belongs to the parent.
  void roll_back() noexcept;
  /// For a caller that holds the layout's mutex. Returns the bindings, to be destroyed after the lock.
  [[nodiscard]] std::vector<binding> roll_back_locked() noexcept;
  [[nodiscard]] bool undecided() const noexcept { return decision_ == decision::none; }
  [[nodiscard]] bool committed() const noexcept { return decision_ == decision::commit; }

 private:
  enum class decision { none, commit, roll_back };

  /// A row prepared up to its driver call; for the kinds that plans have by the thousand.
  struct ready_row {
    held* made = nullptr;  ///< the future owner of the object; null: the row sets rights
    device_id device{-1};  ///< the device that must be current; -1: any
    const allocation* memory = nullptr;
    const mapping* mapped = nullptr;
    const set_rights* access = nullptr;
    bool plain = false;  ///< a single driver call
  };

  template <class Kind>
  Kind& get(slot_id slot) const;
  hip::runtime& runtime() const noexcept { return *state_->runtime; }

  void get_ready(std::size_t end);
  [[nodiscard]] bool add_ready(const row& next);
  [[nodiscard]] driver_call call_of(const ready_row& ready) const;
  void take_result(const ready_row& ready, const driver_call& call, hip::hipError_t result);
  [[nodiscard]] std::size_t count_plain_rows(std::size_t end);
  void run_plain_rows(std::size_t size, deadline& stop);
  [[nodiscard]] bool run_single_row(deadline& stop, time until, time gives_up);
  [[nodiscard]] bool reserve(const row& next, const reserve_range& what, deadline& stop, time until,
                             time gives_up);
  void make_current(device_id wanted);
  [[nodiscard]] bool needs_another(device_id wanted) const;

  void commit_locked() noexcept;
  void place_kept_objects();
  void choose_what_is_freed_behind();
  void choose_spares();
  void keep_spares() noexcept;
  void place_new_objects(std::size_t owners);
  void take_segment(std::size_t owners);
  void count_gone(std::span<held* const> some) noexcept;
  void make(const row& next);
  void alter(const row& next);
  template <class Call>
  void logged(plan_name name, std::string identity, std::function<void()> back, bool keeps_failed, Call call);
  void retire_rest(retirement&& rest) noexcept;

  std::shared_ptr<holdings> holdings_;
  layout_state_ptr state_;
  change_plan plan_;
  std::vector<binding> bound_;
  snapshot_ptr old_snapshot_;
  std::vector<segment_ptr> segments_;  ///< those of the old snapshot in which something is left
  segment_ptr segment_;                ///< of all objects that the rows make
  std::vector<held*> table_;           ///< the new slots, then the extra ones
  std::shared_ptr<snapshot> new_snapshot_;
  snapshot_ptr after_;  ///< without the extra slots
  retirement new_owners_;
  retirement replaced_owners_;            ///< what a commit retires
  std::vector<held*> spared_;             ///< those of them that a commit keeps
  std::vector<held*> owners_behind_;      ///< those of them that are freed behind the caller
  std::shared_ptr<freed_behind> behind_;  ///< for these; null: there are none
  std::vector<held*> log_;                ///< a place for each row that alters what stays
  std::size_t logged_ = 0;
  std::vector<std::pair<std::uintptr_t, std::size_t>> barred_;
  retirement leftovers_;  ///< of searches: what could not be freed
  std::optional<address_search> search_;
  std::vector<row_time> times_;
  std::size_t done_ = 0;
  bool failed_ = false;
  bool in_order_ = false;  ///< the table is in the order of creation
  decision decision_ = decision::none;

  std::vector<ready_row> ready_;
  std::vector<driver_call> calls_;
  std::size_t first_ready_ = 0;  ///< the row that ready_ begins with
  std::size_t at_once_ =
      256;  ///< rows to prepare in advance; those that do not run in time are prepared again
  std::optional<scoped_device> current_;
  device_id device_{-1};
  const bool is_plain_;
};

template <class Kind>
Kind& change::get(slot_id slot) const {
  if (slot < table_.size() && table_[slot]) {
    if (auto* const what = std::get_if<Kind>(&table_[slot]->what)) return *what;
  }
  throw std::out_of_range("slot " + std::to_string(slot) +
                          " is empty, or of another kind than the row needs");
}

}  // namespace hipplan
