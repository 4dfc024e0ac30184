// Blocks of one piece of memory: best fit, neighbours join again. Arithmetic on
// offsets, nothing is touched.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <tuple>

namespace hipplan {

class suballocator {
 public:
  /// Every offset is a multiple of this, and every block is rounded up to it.
  static constexpr std::size_t alignment_bytes = 512;

  explicit suballocator(std::size_t size_bytes);

  /// The offset of a free block of this size; none if there is no room in one
  /// piece, or the size is 0. Throws std::bad_alloc, and changes nothing then.
  [[nodiscard]] std::optional<std::size_t> take(std::size_t size_bytes);
  /// False if no block begins there. Needs no memory.
  bool give_back(std::size_t offset) noexcept;

  /// Bytes of blocks that are out, rounding included.
  [[nodiscard]] std::size_t used_bytes() const noexcept { return used_bytes_; }
  [[nodiscard]] std::size_t largest_free_bytes() const noexcept;
  [[nodiscard]] std::size_t blocks() const noexcept { return blocks_; }

 private:
  struct piece {
    std::size_t size_bytes;
    bool is_out;
  };
  using pieces = std::map<std::size_t, piece>;                         // by offset
  using sizes = std::set<std::tuple<bool, std::size_t, std::size_t>>;  // (is it out, bytes, offset)

  void change(pieces::iterator which, piece to) noexcept;
  void remove(pieces::iterator which) noexcept;

  // Of all pieces, whether they are out or free: one that comes back has its place in both already.
  pieces pieces_;
  sizes by_size_;
  std::size_t blocks_ = 0;
  std::size_t used_bytes_ = 0;
};

}  // namespace hipplan
