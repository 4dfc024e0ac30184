// Which memory of the host this process has registered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "this_process.hpp"

namespace hipplan {

/// A range of the host's memory, for one owner in this process: runtimes do not count registrations, so the
/// first one that ends would end all. Move-only; the destructor gives it up.
class registered_range {
 public:
  /// Empty.
  registered_range() = default;
  /// Empty if another owner has a part of it. Throws std::bad_alloc.
  registered_range(std::uintptr_t address, std::size_t size_bytes);
  registered_range(registered_range&& other) noexcept : begin_(std::exchange(other.begin_, 0)) {}
  registered_range& operator=(registered_range&& other) noexcept {
    std::swap(begin_, other.begin_);
    return *this;
  }
  ~registered_range();
  explicit operator bool() const noexcept { return begin_ != 0; }

 private:
  std::uintptr_t begin_ = 0;  ///< no two ranges begin at the same address
};

/// All of them, by where they begin and end. In a forked child none: its memory is not registered.
struct registered_ranges {
  std::mutex mutex;
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> all;
};

inline registered_range::registered_range(std::uintptr_t address, std::size_t size_bytes) {
  auto& ranges = of_this_process<registered_ranges>();
  const std::lock_guard lock(ranges.mutex);
  for (const auto& [begin, end] : ranges.all) {
    if (address < end && begin < address + size_bytes) return;
  }
  ranges.all.emplace_back(address, address + size_bytes);
  begin_ = address;
}

inline registered_range::~registered_range() {
  if (begin_ == 0) return;
  auto& ranges = of_this_process<registered_ranges>();
  const std::lock_guard lock(ranges.mutex);
  std::erase_if(ranges.all, [this](const auto& range) { return range.first == begin_; });
}

}  // namespace hipplan
