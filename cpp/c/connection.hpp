// The connection of an attached process to its holder. A forked child closes it: it would hide the parent's
// end.
#pragma once

#include <mutex>

#include "descriptor.hpp"

namespace hipplan::c {

class connection {
 public:
  /// Throws std::bad_alloc.
  explicit connection(descriptor link);
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;
  ~connection();

  [[nodiscard]] const descriptor& link() const noexcept { return link_; }
  /// What the holder has sent without a request: see hipplan_lost(). Null: it keeps the same memory.
  [[nodiscard]] const char* lost() noexcept;

 private:
  friend struct connections;
  std::mutex mutex_;
  descriptor link_;
  const char* lost_ = nullptr;
  bool is_last_ = false;  ///< nothing more comes
};

}  // namespace hipplan::c
