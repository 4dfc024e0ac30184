// Divides a piece of memory into blocks: best fit, and free neighbours are joined. It works on offsets only
// and never accesses the memory.
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

  /// Returns the offset of a block of this size; nothing if no free piece is large enough, or the size is 0.
  /// Throws std::bad_alloc, and changes nothing then.
  [[nodiscard]] std::optional<std::size_t> take(std::size_t size_bytes);
  /// Returns false if no block begins there. Allocates no memory.
  bool free_block(std::size_t offset) noexcept;

  /// Bytes of blocks in use, rounding included.
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

  // Both contain all pieces, used and free: so freeing a block allocates no entry.
  pieces pieces_;
  sizes by_size_;
  std::size_t blocks_ = 0;
  std::size_t used_bytes_ = 0;
};

}  // namespace hipplan
