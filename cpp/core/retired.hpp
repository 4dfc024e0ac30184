// The objects that a layout no longer needs, until they are freed: the one loop of roll back, change and
// teardown.
//
// It frees the latest first. A failure does not stop the others: it is reported by name. Nothing allocates
// host memory before an object's driver call; if there is no memory to report its failure, the loop is called
// again and only reports.
#pragma once

#include <chrono>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "deadline.hpp"
#include "described.hpp"
#include "freed_behind.hpp"
#include "hip/error.hpp"
#include "leases.hpp"
#include "snapshot.hpp"
#include "units.hpp"

namespace hipplan {

/// An object that could not be freed, or an alteration that could not be undone.
struct leak {
  std::string name;      ///< the plan's name for the object
  std::string identity;  ///< kind, size, address
  hip::hip_error error;
  bool is_change = false;  ///< an object that exists, but could not be restored
};

/// The outcome of a roll back, the end of a change or a teardown.
struct undo_report {
  std::size_t freed = 0;     ///< how many objects
  std::size_t restored = 0;  ///< how many alterations were undone
  std::vector<leak> leaks;
  std::vector<std::string> kept;  ///< names of objects that wait for leases to end
};

/// Frees an object and adds the outcome to the report. Throws std::bad_alloc if there is no memory to report
/// a failure; then it must be called again, or the object's destructor reports it.
template <class Kind, class Release>
void release_into(undo_report& report, Kind& what, Release release) {
  constexpr bool is_change = std::is_same_v<Kind, alteration>;
  try {
    release();
    ++(is_change ? report.restored : report.freed);
  } catch (const hip::hip_error& error) {
    report.leaks.push_back({what.name(), what.identify(), error, is_change});
    what.mark_reported();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {  // none is known; but a release that always throws must end
    const hip::hip_error unknown(hip::hipErrorUnknown, "undo", what.identify(), error.what());
    report.leaks.push_back({what.name(), what.identify(), unknown, is_change});
    what.mark_reported();
  }
}

/// The same for an owner that is there; without memory for the report, its destructor reports.
template <class Owner>
void free_owned(Owner& owner, undo_report& report) noexcept {
  if (owner.empty()) return;
  try {
    release_into(report, owner, [&] { owner.release(); });
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the owner keeps its failure
  }
}

/// Adds the description of an object, if it exists.
void describe(const held& one, std::vector<described>& out);

/// Adds each of them that still owns something to the leak log, as kept because there is no memory to free
/// it.
void report_kept(std::span<held* const> owners) noexcept;

/// Owners in the order of creation, and the segments that they are in.
struct retirement {
  std::vector<held*> owners;  ///< null: nothing
  std::vector<segment_ptr> segments;
};

class retired {
 public:
  retired(layout_state_ptr state, std::shared_ptr<lease_book> leases)
      : state_(std::move(state)), leases_(std::move(leases)) {}
  retired(const retired&) = delete;
  retired& operator=(const retired&) = delete;
  ~retired();
  /// The last resort: waits for the devices, and frees everything that does not wait for leases. Failures go
  /// to the leak log.
  void free_all() noexcept;

  /// The devices that may access the objects, with their names in messages. Freeing waits for them first.
  using devices = std::vector<std::pair<std::string, device_id>>;
  void set_devices(devices all);
  [[nodiscard]] devices to_wait_for() const;

  // For a caller that holds the layout's mutex.
  /// Makes room, so that none of the next four allocates.
  void make_room_locked() {
    lists_.going.reserve(lists_.going.size() + 5);
    behind_.reserve(behind_.size() + 1);
  }
  /// Adds what is freed behind the caller.
  void add_behind_locked(std::shared_ptr<freed_behind> more) noexcept { behind_.push_back(std::move(more)); }
  /// Adds objects to free before all others. Owners that are all empty are not added: they need no wait for a
  /// device.
  void add_locked(retirement&& more) noexcept;
  /// Adds objects to free after all others: what a change has left over is mapped in them, or is restored
  /// into them.
  void add_last_locked(retirement&& more) noexcept;
  enum class spared {
    nothing,  ///< the memory was barred before: it has no leases
    leased,   ///< Ranges and buffers with leases stay, so that a stale pointer never reaches new memory.
              ///< Mappings are unmapped, so that it faults. Streams stay, because a thread may still copy in
              ///< them.
    all,      ///< for a layout dropped without close(): everything stays until the last lease ends
  };
  void spare_locked(spared what) noexcept { spared_ = what; }
  [[nodiscard]] bool has_freeable_locked() const noexcept { return !lists_.going.empty(); }

  // In a forked child there is nothing to free.
  /// Whether there are objects to free, with or without leases.
  [[nodiscard]] bool any() const;
  /// Whether some of them do not wait for leases.
  [[nodiscard]] bool has_freeable() const;
  /// Whether some of them wait for leases that still exist.
  [[nodiscard]] bool waits_for_views() const;
  /// Waits for what is freed behind the caller. Returns false at the time limit.
  [[nodiscard]] bool wait_behind(std::chrono::steady_clock::time_point until) const;
  /// Adds what could not be freed to a report, once: of all that has ended. Throws std::bad_alloc, and loses
  /// nothing then.
  void report_behind(undo_report& report);
  /// What is freed behind the caller and was not reported yet.
  [[nodiscard]] std::vector<described> behind() const;
  /// Frees at least one object, then more until the deadline. Returns false when nothing more can be freed
  /// now.
  bool free_some(undo_report& report, std::chrono::steady_clock::time_point until);
  /// The objects that are not freed yet, and what is freed behind the caller and was not reported yet.
  [[nodiscard]] std::vector<described> contents() const;
  /// The same, with each object in the leak log: there is no memory to free it.
  void keep_all() noexcept;
  /// Leaks all of it: it stays until the process ends, and no later call waits for a device because of it.
  void abandon() noexcept;

  [[nodiscard]] hip::runtime& runtime() const noexcept { return *state_->runtime; }
  [[nodiscard]] const layout_state_ptr& state() const noexcept { return state_; }
  [[nodiscard]] const std::shared_ptr<lease_book>& leases() const noexcept { return leases_; }

 private:
  [[nodiscard]] bool must_stay(const held& one) const;
  /// Frees the latest batch. Returns whether the deadline has passed.
  bool free_batch(std::vector<held*>& owners, undo_report& report,
                  std::chrono::steady_clock::time_point until);
  /// Frees the first of them that need a single call each, and adds their number to `done`. Returns false if
  /// the very first needs more.
  bool free_plain(std::span<held* const> owners, std::size_t& done, undo_report& report, deadline& stop);
  void choose(undo_report& report);
  [[nodiscard]] std::vector<std::shared_ptr<freed_behind>> works_behind() const;

  layout_state_ptr state_;
  std::shared_ptr<lease_book> leases_;
  devices devices_;
  struct lists {
    std::vector<retirement> going;  ///< to free, the latest last
    std::vector<retirement> kept;   ///< waiting for leases
  };
  lists lists_;
  std::vector<std::shared_ptr<freed_behind>> behind_;
  spared spared_ = spared::nothing;
};

/// Retired objects that wait for leases, of layouts that are closed or destroyed: later calls try again.
namespace waiting {
/// Throws std::bad_alloc.
void add(std::shared_ptr<retired> some);
[[nodiscard]] std::size_t count();
[[nodiscard]] std::vector<std::shared_ptr<retired>> all();
void remove(const std::shared_ptr<retired>& some) noexcept;
}  // namespace waiting

}  // namespace hipplan
