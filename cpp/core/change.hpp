// One change of what a layout owns, from one snapshot to the next: all of it, or nothing.
//
// advance() runs rows: what they make is owned by the change, and what takes an alteration back is placed
// before the call too. Then the decision falls, once: commit() swaps the snapshot, or roll_back() does not.
// Neither can fail. What the decision leaves over, the old or the new, is retired, and given back by the one
// loop, latest first (retired.hpp): a mapping that came goes before the one whose place it took is put back.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "holdings.hpp"
#include "rows.hpp"
#include "scoped_device.hpp"

namespace hipplan {

/// What a change begins with.
struct change_plan {
  row_table_ptr rows;
  std::size_t slots = 0;        ///< of the new snapshot
  std::size_t extra_slots = 0;  ///< behind them, of what is there only meanwhile
  std::size_t same_slots = 0;   ///< so many of the old snapshot's stay as they are, from the first on
  std::vector<std::pair<slot_id, slot_id>> kept;  ///< (new slot, old slot) of what else stays, or is altered
  bool timed = false;
};

/// An address that is asked for exactly cannot be had.
class address_taken : public std::runtime_error {
 public:
  explicit address_taken(std::uintptr_t got)
      : std::runtime_error("the runtime placed it at " + hexadecimal(got)), address(got) {}
  std::uintptr_t address;
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
  /// Throws std::logic_error where another change of the layout is undecided. All that needs the layout's
  /// mutex throws std::runtime_error in a forked child.
  change(std::shared_ptr<holdings> of, change_plan plan);
  change(const change&) = delete;
  change& operator=(const change&) = delete;
  /// A net: rolls back what is undecided, and gives back what is retired; failures go to the leak log.
  ~change();

  /// Bars what goes for those who look at memory; what leases are on is the answer, and then nothing is
  /// barred. force: it is all the same, and nothing is the answer: the leases stay. Comes before the first
  /// row that unmaps: what is not mapped any more is not found.
  [[nodiscard]] std::vector<leased> bar(bool force);

  /// What the caller passes for rows that need it.
  void bind(std::vector<binding> bound);

  /// Runs rows in order up to `end`, at least one and then as many as fit until a time; stops at the first
  /// failure. Throws what is no driver error too; done() tells how far it came. Throws std::logic_error where
  /// the change is decided, and after a failure: it can only be rolled back then.
  void advance(std::size_t end, std::chrono::steady_clock::time_point until);
  /// The row after those has failed.
  [[nodiscard]] bool failed() const noexcept { return failed_; }
  /// Rows that are done.
  [[nodiscard]] std::size_t done() const noexcept { return done_; }
  /// Of a row that is done, in a timed change.
  [[nodiscard]] row_time time_of(std::size_t row) const { return times_.at(row); }
  /// What it makes, slot by slot; immutable from the decision on.
  [[nodiscard]] const std::shared_ptr<snapshot>& making() const noexcept { return making_; }

  /// Decides: the new snapshot counts, the old one's rest is retired. False where it was rolled back already.
  /// beside: what happens in the same moment; what it gives is kept until the end of it. It may not fail.
  /// Throws std::logic_error where rows are left, and decides nothing; else it cannot fail.
  template <class Beside>
  bool commit(Beside beside) {
    std::vector<binding> bound;  // let go behind the lock
    const auto lock = home_->locked();
    if (!undecided()) return committed();
    if (done_ != plan_.rows->rows.size()) throw std::logic_error("not all rows of the change are done");
    const auto at_once = beside();
    bound.swap(bound_);
    take_place();
    return true;
  }
  /// Decides: what was made is retired, and so are the alterations, which puts back what they altered. Does
  /// nothing where it is decided. In a forked child nothing is retired: it is the parent's.
  void roll_back() noexcept;
  /// For who holds the household's mutex: what was bound, to be let go behind it.
  [[nodiscard]] std::vector<binding> roll_back_locked() noexcept;
  [[nodiscard]] bool undecided() const noexcept { return decision_ == decision::none; }
  [[nodiscard]] bool committed() const noexcept { return decision_ == decision::commit; }

 private:
  enum class decision { none, commit, roll_back };

  /// A row with all it needs but the driver call; for those that come by the thousand.
  struct ready_row {
    held* made = nullptr;  ///< what will own the object; null: rights are set
    device_id device{-1};  ///< that must be current; -1: any
    const allocation* memory = nullptr;
    const mapping* mapped = nullptr;
    const set_rights* access = nullptr;
    bool plain = false;  ///< one call
  };

  template <class Kind>
  Kind& get(slot_id slot) const;
  hip::runtime& runtime() const noexcept { return *home_->runtime; }

  void get_ready(std::size_t end);
  [[nodiscard]] bool add_ready(const row& next);
  [[nodiscard]] driver_call call_of(const ready_row& ready) const;
  void take_answer(const ready_row& ready, const driver_call& call, hip::hipError_t result);
  [[nodiscard]] std::size_t row_size(std::size_t end);
  void run_row(std::size_t size, deadline& stop);
  void run_one(deadline& stop);
  void make_current(device_id wanted);
  [[nodiscard]] bool needs_another(device_id wanted) const;

  void take_place() noexcept;
  void find_what_stays();
  void place_what_comes();
  void make(const row& next);
  void alter(const row& next);
  template <class Call>
  void logged(plan_name name, std::string identity, std::function<void()> back, bool keeps_failed, Call call);
  void leave(retirement&& over) noexcept;

  std::shared_ptr<holdings> of_;
  household_ptr home_;
  change_plan plan_;
  std::vector<binding> bound_;
  snapshot_ptr before_;
  segment_ptr segment_;       ///< of all that the rows make
  std::vector<held*> table_;  ///< the new slots, then the extra ones
  std::shared_ptr<snapshot> making_;
  snapshot_ptr after_;  ///< without the extra slots
  retirement new_ones_;
  retirement old_ones_;     ///< what a commit leaves over
  std::vector<held*> log_;  ///< a place for each row that alters what stays
  std::size_t logged_ = 0;
  std::vector<std::pair<std::uintptr_t, std::size_t>> barred_;
  std::vector<row_time> times_;
  std::size_t done_ = 0;
  bool failed_ = false;
  bool in_order_ = false;  ///< the table is in the order of making
  decision decision_ = decision::none;

  std::vector<ready_row> ready_;
  std::vector<driver_call> calls_;
  std::size_t first_ready_ = 0;  ///< the row that ready_ begins with
  std::size_t at_once_ = 256;    ///< what got ready and is not made in time gets ready again
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
