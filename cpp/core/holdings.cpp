#include "holdings.hpp"

#include <algorithm>
#include <limits>

#include "change.hpp"
#include "with_memory.hpp"

namespace hipplan {

holdings::holdings(std::shared_ptr<retired> going) : home_(going->home()), retired_(std::move(going)) {
  current_ = std::make_shared<snapshot>(home_, std::vector<held*>{}, std::vector<segment_ptr>{}, true);
}

holdings::~holdings() {
  if (!home_->runtime->may_call()) return;
  if (!closed_) {
    with_memory([&] {
      auto all = all_of(*current_);
      retired_->make_room();
      (void)leases()->bar(0, std::numeric_limits<std::size_t>::max(), true);
      retired_->spare(retired::spared::all);
      retired_->add_last(std::move(all));
    });
  }
  with_memory([&] {
    if (retired_->any() && leases()->size() != 0) waiting::add(retired_);
  });
}

snapshot_ptr holdings::current() const {
  const std::lock_guard lock(home_->mutex);
  return current_;
}

std::vector<leased> holdings::close(bool force) {
  if (closed_) return {};
  if (change_) change_->roll_back();
  auto all = all_of(*current_);
  retired_->make_room();
  auto in_use = leases()->bar(0, std::numeric_limits<std::size_t>::max(), force);
  if (!in_use.empty() && !force) return in_use;
  retired_->spare(retired::spared::leased);
  retired_->add_last(std::move(all));
  closed_ = true;
  return in_use;
}

retirement all_of(const snapshot& what) {
  retirement out{{}, what.segments()};
  out.owners.reserve(what.size());
  for (auto* const one : what.table()) {
    if (one) out.owners.push_back(one);
  }
  if (!what.in_order()) std::ranges::sort(out.owners, {}, &held::made);
  return out;
}

}  // namespace hipplan
