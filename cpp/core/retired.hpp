// What a layout has no more use for, until it is given back: the one loop of roll back, change and teardown.
//
// Latest first. A failure does not stop the others: it is reported by name. To give one back no memory is
// asked for before the driver is, and where there is none for a failure's words, the loop is called again and
// only tells.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "deadline.hpp"
#include "hip/error.hpp"
#include "leases.hpp"
#include "snapshot.hpp"
#include "units.hpp"

namespace hipplan {

/// What could not be given back, or put back.
struct leak {
  std::string name;      ///< the plan's name for the object
  std::string identity;  ///< kind, size, address
  hip::hip_error error;
  bool is_change = false;  ///< not an object that was lost, but one that could not be restored
};

/// What came of a roll back, a change's end or a teardown.
struct undo_report {
  std::size_t given_back = 0;  ///< objects
  std::size_t put_back = 0;    ///< alterations
  std::vector<leak> leaks;
  std::vector<std::string> kept;  ///< names of what waits because leases on it are out
};

/// (place in the order of making, name, kind and size and address) of one object.
struct described {
  std::uint64_t made;
  std::string name;
  std::string identity;
};

/// Adds what an object says of itself, if it is there.
void describe(const held& one, std::vector<described>& out);

/// Owners in the order of making, and the memory that they are in.
struct retirement {
  std::vector<held*> owners;  ///< null: nothing
  std::vector<segment_ptr> segments;
};

class retired {
 public:
  retired(household_ptr home, std::shared_ptr<lease_book> leases)
      : home_(std::move(home)), leases_(std::move(leases)) {}
  retired(const retired&) = delete;
  retired& operator=(const retired&) = delete;
  ~retired();
  /// A net: waits for the devices, and gives back what is left, but for what waits for leases. Failures go to
  /// the leak log.
  void give_all_back() noexcept;

  /// Devices that may reach what is given back, and what messages call them: they are waited for.
  using devices = std::vector<std::pair<std::string, device_id>>;
  void set_devices(devices all);
  [[nodiscard]] devices to_wait_for() const;

  // For who holds the household's mutex.
  /// Room for one more, so that neither of the next two needs memory.
  void make_room_locked() { lists_.going.reserve(lists_.going.size() + 2); }
  /// Given back before all that is there already. What owns nothing is not added: nobody need wait for a
  /// device.
  void add_locked(retirement&& more) noexcept;
  /// Given back after it: what a change has left over lies in what the layout holds, or is to be put back
  /// into it.
  void add_last_locked(retirement&& more) noexcept;
  enum class spared {
    nothing,  ///< what goes was barred before: no lease is on it
    leased,   ///< What leases are on stays, mappings excepted: those go, so that a stale pointer faults. What
              ///< they lie in, and every buffer under a lease, stays, so that it never hits new memory;
              ///< streams stay, because a thread that moves bytes may use them.
    all,      ///< dropped without close(): everything stays until the last lease ends
  };
  void spare_locked(spared what) noexcept { spared_ = what; }
  [[nodiscard]] bool goes_locked() const noexcept { return !lists_.going.empty(); }

  // In a forked child nothing is to be given back.
  /// Something is to be given back, whether or not leases hold it.
  [[nodiscard]] bool any() const;
  /// Something of it does not wait for leases.
  [[nodiscard]] bool goes() const;
  /// Some of it waits for leases, which are out still.
  [[nodiscard]] bool waits() const;
  /// Gives back, at least one and then as many as fit until a time; false when nothing more can be given back
  /// now.
  bool give_back(undo_report& report, std::chrono::steady_clock::time_point until);
  /// What give_back() has still to do.
  [[nodiscard]] std::vector<described> contents() const;
  /// Gives up on all of it: it stays until the process ends, and nobody waits for a device because of it.
  void abandon() noexcept;

  [[nodiscard]] hip::runtime& runtime() const noexcept { return *home_->runtime; }
  [[nodiscard]] const household_ptr& home() const noexcept { return home_; }
  [[nodiscard]] const std::shared_ptr<lease_book>& leases() const noexcept { return leases_; }

 private:
  [[nodiscard]] bool must_stay(const held& one) const;
  /// Of the latest so many; whether the time has passed.
  bool give_some(std::vector<held*>& owners, undo_report& report,
                 std::chrono::steady_clock::time_point until);
  /// The first of them that are given back by one plain call each; false if the very first is not. What was
  /// tried is added to `done`.
  bool give_row(std::span<held* const> owners, std::size_t& done, undo_report& report, deadline& stop);
  void choose(undo_report& report);

  household_ptr home_;
  std::shared_ptr<lease_book> leases_;
  devices devices_;
  struct lists {
    std::vector<retirement> going;  ///< the latest last
    std::vector<retirement> kept;   ///< what leases are on
  };
  lists lists_;
  spared spared_ = spared::nothing;
};

/// All of them that wait for leases and whose layouts are gone or closed: for the process to try again.
namespace waiting {
/// Throws std::bad_alloc.
void add(std::shared_ptr<retired> some);
[[nodiscard]] std::size_t count();
[[nodiscard]] std::vector<std::shared_ptr<retired>> all();
void remove(const std::shared_ptr<retired>& some) noexcept;
}  // namespace waiting

}  // namespace hipplan
