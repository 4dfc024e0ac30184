// A holder's memory in this process: mapped as one change, all of it or nothing.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "answer.hpp"
#include "connection.hpp"
#include "core/holdings.hpp"
#include "exchange.hpp"
#include "find_holder.hpp"
#include "hipplan.h"

namespace hipplan::c {

/// How to attach, checked.
struct wish {
  std::string holder;
  std::string access = "plan";
  std::string addresses = "same";
  std::string library;  ///< empty: none is told
  double timeout_s = 60.0;
};

class attached {
 public:
  /// Throws failure, after rolling back; std::bad_alloc.
  explicit attached(const wish& wished);
  attached(const attached&) = delete;
  attached& operator=(const attached&) = delete;
  /// Frees what detach() has not freed.
  ~attached() = default;

  [[nodiscard]] const std::vector<hipplan_object>& objects() const noexcept { return objects_; }
  /// Null if there is none.
  [[nodiscard]] const hipplan_object* find(std::string_view name) const;
  [[nodiscard]] const char* lost() noexcept { return link_->lost(); }
  [[nodiscard]] bool is_of_parent() const noexcept { return memory_->state()->in_forked_child(); }
  /// Frees everything, then tells the holder. Throws failure (HP403).
  void detach();

 private:
  void map(const message& received, time_point until);
  void list_objects();

  std::shared_ptr<hip::runtime> runtime_;
  std::unique_ptr<connection> link_;
  answer answer_;
  std::shared_ptr<holdings> memory_;
  std::vector<hipplan_object> objects_;
  std::unordered_map<std::string_view, const hipplan_object*> by_name_;
};

}  // namespace hipplan::c
