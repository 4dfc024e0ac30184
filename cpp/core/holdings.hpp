// What a layout holds: its current snapshot, and retired objects that are not freed yet.
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
  explicit holdings(std::shared_ptr<retired> retired_objects);
  holdings(const holdings&) = delete;
  holdings& operator=(const holdings&) = delete;
  /// The last resort for a layout that was never closed: frees all of it, at once or after the last lease.
  ~holdings();

  [[nodiscard]] const layout_state_ptr& state() const noexcept { return state_; }
  [[nodiscard]] const std::shared_ptr<lease_book>& leases() const noexcept { return retired_->leases(); }
  [[nodiscard]] const std::shared_ptr<retired>& retired_objects() const noexcept { return retired_; }
  [[nodiscard]] snapshot_ptr current() const;
  /// Whether a change is undecided.
  [[nodiscard]] bool is_changing() const noexcept { return change_.load() != nullptr; }
  [[nodiscard]] bool is_closed() const noexcept { return closed_; }
  /// Whether an object could not be restored.
  [[nodiscard]] bool is_damaged() const noexcept { return state_->damaged; }
  /// Bytes of the memory that no object has, and that changes keep for the next ones.
  [[nodiscard]] std::size_t spare_bytes() const;

  /// Retires everything, after rolling back an undecided change. If there are leases, returns them and
  /// retires nothing. force: retires everything else. In a forked child nothing is retired.
  [[nodiscard]] std::vector<leased> close(bool force);

 private:
  friend class change;
  /// Fills an empty allocation with spare memory; false where there is none like it. For a caller that holds
  /// the layout's mutex.
  [[nodiscard]] bool take_spare(allocation& wanted) noexcept;
  /// Retires the current snapshot, to be freed after what is retired already. For a caller that holds the
  /// layout's mutex. If there are leases and not `force`, returns them and changes nothing. Throws
  /// std::bad_alloc, and changes nothing then.
  [[nodiscard]] std::vector<leased> retire_all(retired::spared spared, bool force);

  layout_state_ptr state_;
  std::shared_ptr<retired> retired_;
  snapshot_ptr current_;
  segment_ptr open_;   ///< the latest, which has room for more objects
  retirement spares_;  ///< allocations without a name in the layout, which the next ones like them take
  std::atomic<change*> change_{nullptr};  ///< the undecided change; written under the layout's mutex
  std::uint64_t made_count_ = 0;          ///< objects made so far
  std::atomic<bool> closed_{false};
};

}  // namespace hipplan
