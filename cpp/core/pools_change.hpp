// Sleep or wake of several pools: all of them, or none.
//
// Each pool makes the half of it that can be undone; only then all make the half that cannot fail.
#pragma once

#include <memory>
#include <vector>

#include "growing_pool.hpp"

namespace hipplan {

class pools_change {
 public:
  pools_change() = default;
  pools_change(const pools_change&) = delete;
  pools_change& operator=(const pools_change&) = delete;
  /// Takes back what is undecided; failures go to the leak log.
  ~pools_change();

  /// Adds a stopped pool: growing_pool::begin_sleep(), with what that throws; then this pool is not added.
  void sleep(std::shared_ptr<growing_pool> pool, bool keep_bytes, undo_report& report);
  /// Adds a pool that is asleep: growing_pool::begin_wake(), likewise.
  void wake(std::shared_ptr<growing_pool> pool, undo_report& report);
  /// retain: as of growing_pool::commit().
  void commit(bool retain, undo_report& report) noexcept;
  /// The last first.
  void undo(undo_report& report) noexcept;

 private:
  std::vector<std::shared_ptr<growing_pool>> begun_;
};

}  // namespace hipplan
