// What a layout holds: the snapshot that counts, and what is retired and not given back yet.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "retired.hpp"
#include "snapshot.hpp"

namespace hipplan {

class change;

class holdings {
 public:
  explicit holdings(std::shared_ptr<retired> going);
  holdings(const holdings&) = delete;
  holdings& operator=(const holdings&) = delete;
  /// A net, for a layout that nobody has closed: gives back all of it; at once, or when the last lease has
  /// gone.
  ~holdings();

  [[nodiscard]] const household_ptr& home() const noexcept { return home_; }
  [[nodiscard]] const std::shared_ptr<lease_book>& leases() const noexcept { return retired_->leases(); }
  [[nodiscard]] const std::shared_ptr<retired>& going() const noexcept { return retired_; }
  [[nodiscard]] snapshot_ptr current() const;
  /// Whether a change is undecided.
  [[nodiscard]] bool is_changing() const noexcept { return change_.load() != nullptr; }
  [[nodiscard]] bool is_closed() const noexcept { return closed_; }
  /// Something could not be restored.
  [[nodiscard]] bool is_damaged() const noexcept { return home_->damaged; }

  /// Everything goes, unless leases are out, which are the answer. force: then too, but what they are on
  /// stays. A change that is undecided is rolled back first. In a forked child nothing goes.
  [[nodiscard]] std::vector<leased> close(bool force);

 private:
  friend class change;
  /// All that counts is retired, behind what is retired already. For who holds the household's mutex. Throws
  /// std::bad_alloc, and has changed nothing then; leases that are out, unless force, are the answer, and
  /// then neither.
  [[nodiscard]] std::vector<leased> retire_all(retired::spared spared, bool force);

  household_ptr home_;
  std::shared_ptr<retired> retired_;
  snapshot_ptr current_;
  std::atomic<change*> change_{nullptr};  ///< the one that is undecided; written with the household's mutex
  std::uint64_t made_ = 0;                ///< objects so far
  std::atomic<bool> closed_{false};
};

}  // namespace hipplan
