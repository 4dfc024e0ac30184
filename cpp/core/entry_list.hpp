// Entries of a journal in ascending order, none twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hipplan {

/// Names one entry of one journal; never used twice.
using entry_id = std::uint64_t;

/// Kept as runs of consecutive numbers: thousands of entries mostly are one. A number each would be a large
/// piece of memory, and when such a one is freed the heap puts together all that the driver's calls have left
/// to it.
class entry_list {
 public:
  /// entry: higher than all here.
  void push_back(entry_id entry) {
    if (runs_.empty() || runs_.back().last + 1 != entry) {
      runs_.push_back({entry, entry});
    } else {
      runs_.back().last = entry;
    }
  }
  [[nodiscard]] bool empty() const noexcept { return runs_.empty(); }

  /// Fills `out` with the highest, from the highest down, as far as there are so many; how many it has
  /// filled.
  [[nodiscard]] std::size_t highest(std::span<entry_id> out) const noexcept {
    std::size_t count = 0;
    for (auto top = runs_.rbegin(); top != runs_.rend(); ++top) {
      for (entry_id down = 0; down <= top->last - top->first; ++down) {
        if (count == out.size()) return count;
        out[count++] = top->last - down;
      }
    }
    return count;
  }
  /// Takes the so many highest away.
  void pop_back(std::size_t count) noexcept {
    while (count > 0) {
      auto& top = runs_.back();
      const auto size = top.last - top.first + 1;
      if (count < size) {
        top.last -= count;
        return;
      }
      count -= size;
      runs_.pop_back();
    }
  }

 private:
  struct run {
    entry_id first;
    entry_id last;
  };
  std::vector<run> runs_;
};

}  // namespace hipplan
