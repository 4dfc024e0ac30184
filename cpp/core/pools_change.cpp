#include "pools_change.hpp"

#include <string_view>
#include <utility>

#include "leak_log.hpp"

namespace hipplan {

pools_change::~pools_change() {
  undo_report report;
  undo(report);
  for (const auto& leak : report.leaks) report_leak(std::string_view(leak.error.what()));
}

void pools_change::sleep(std::shared_ptr<growing_pool> pool, bool keep_bytes, undo_report& report) {
  begun_.reserve(begun_.size() + 1);
  pool->begin_sleep(keep_bytes, report);
  begun_.push_back(std::move(pool));
}

void pools_change::wake(std::shared_ptr<growing_pool> pool, undo_report& report) {
  begun_.reserve(begun_.size() + 1);
  pool->begin_wake(report);
  begun_.push_back(std::move(pool));
}

void pools_change::commit(bool retain, undo_report& report) noexcept {
  for (const auto& pool : begun_) pool->commit(retain, report);
  begun_.clear();
}

void pools_change::undo(undo_report& report) noexcept {
  for (; !begun_.empty(); begun_.pop_back()) begun_.back()->undo(report);
}

}  // namespace hipplan
