// The advice and prefetch state of managed memory, page by page: an interval map.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>

namespace hipsim {

inline constexpr int no_location = -2;   // hipInvalidDeviceId
inline constexpr int cpu_location = -1;  // hipCpuDeviceId

struct managed_state {
  bool read_mostly = false;
  bool coarse_grain = false;
  int preferred = no_location;
  int last_prefetch = no_location;
  std::uint64_t accessed_by = 0;  ///< one bit per device
  bool accessed_by_cpu = false;

  bool operator==(const managed_state&) const = default;
};

class managed_ranges {
 public:
  managed_ranges() = default;
  explicit managed_ranges(std::uint64_t bytes) : end_(bytes) { starts_[0] = {}; }

  /// Applies `change(state)` to the bytes [from, to).
  template <class Change>
  void update(std::uint64_t from, std::uint64_t to, Change change) {
    const auto first = split(from);
    const auto last = split(to);
    for (auto it = first; it != last; ++it) change(it->second);
    merge(first, to);
  }

  /// Calls `visit(state)` for each run of equal pages in [from, to).
  template <class Visit>
  void visit(std::uint64_t from, std::uint64_t to, Visit visit) const {
    auto it = std::prev(starts_.upper_bound(from));
    for (; it != starts_.end() && it->first < to; ++it) visit(it->second);
  }

 private:
  using runs = std::map<std::uint64_t, managed_state>;

  runs::iterator split(std::uint64_t at) {
    if (at >= end_) return starts_.end();
    const auto found = starts_.lower_bound(at);
    if (found != starts_.end() && found->first == at) return found;
    return starts_.emplace_hint(found, at, std::prev(found)->second);
  }

  // Joins runs that became equal to their neighbours, so that a million updates do not leave a million runs.
  void merge(runs::iterator first, std::uint64_t to) {
    if (first == starts_.end()) return;
    auto it = first == starts_.begin() ? first : std::prev(first);
    for (auto next = std::next(it); next != starts_.end() && next->first <= to; next = std::next(it)) {
      if (it->second == next->second) {
        starts_.erase(next);
      } else {
        it = next;
      }
    }
  }

  runs starts_;
  std::uint64_t end_ = 0;
};

}  // namespace hipsim
