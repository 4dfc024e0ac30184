// Blocks of one piece of memory: best fit, neighbours join again. Arithmetic on
// offsets, nothing is touched.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace hipplan {

class suballocator {
 public:
  /// Every offset is a multiple of this, and every block is rounded up to it.
  static constexpr std::size_t alignment_bytes = 512;

  explicit suballocator(std::size_t size_bytes);

  /// The offset of a free block of this size; none if there is no room in one
  /// piece, or the size is 0.
  [[nodiscard]] std::optional<std::size_t> take(std::size_t size_bytes);
  /// False if no block begins there.
  bool give_back(std::size_t offset);

  /// Bytes of blocks that are out, rounding included.
  [[nodiscard]] std::size_t used_bytes() const noexcept { return used_bytes_; }
  [[nodiscard]] std::size_t largest_free_bytes() const noexcept {
    return by_size_.empty() ? 0 : by_size_.rbegin()->first;
  }
  [[nodiscard]] std::size_t blocks() const noexcept { return taken_.size(); }

 private:
  void add_free(std::size_t offset, std::size_t size_bytes);
  void remove_free(std::map<std::size_t, std::size_t>::iterator which);

  std::map<std::size_t, std::size_t> free_;                // offset -> bytes
  std::set<std::pair<std::size_t, std::size_t>> by_size_;  // (bytes, offset) of the same
  std::map<std::size_t, std::size_t> taken_;               // offset -> bytes
  std::size_t used_bytes_ = 0;
};

}  // namespace hipplan
