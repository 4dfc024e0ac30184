// Checksums of bytes at positions, which threads compute in parts, of any size and in any order, and add.
//
// A polynomial with secret coefficients, as in Poly1305 and UMAC. A block is the sum of its 256 words, each
// times a random number below 2^56; the checksum is the sum of the blocks, each times a random point to the
// power of the block's number, modulo 2^127 - 1. The random numbers are made once for each process and never
// leave it: whoever does not know them finds other bytes with the same checksum only by chance, which is less
// than 2^-55. A hash function such as SHA-256 takes the bytes in their order: that would be a second pass
// over the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace hipplan {

__extension__ typedef unsigned __int128 checksum;

/// The checksum of bytes that begin at a position. That of two ranges is the sum of theirs.
/// Throws std::system_error: the kernel has no random numbers.
[[nodiscard]] checksum checksum_of(std::uint64_t position, const std::byte* bytes, std::size_t size_bytes);
[[nodiscard]] checksum sum_of(checksum one, checksum other) noexcept;

/// Checksums by number, to which several threads add.
class checksums {
 public:
  /// Makes room for a number. Only before the threads begin.
  void reserve(std::size_t number) {
    if (sums_.size() <= number) sums_.resize(number + 1);
  }
  /// Adds the checksum of bytes to one of them. Throws as checksum_of().
  void add(std::size_t number, std::uint64_t position, const std::byte* bytes, std::size_t size_bytes) {
    const auto more = checksum_of(position, bytes, size_bytes);
    const std::lock_guard lock(mutex_);
    sums_[number] = sum_of(sums_[number], more);
  }
  /// All of them, after the threads have ended; then there are none.
  [[nodiscard]] std::vector<checksum> take() { return std::exchange(sums_, {}); }

 private:
  std::mutex mutex_;
  std::vector<checksum> sums_;
};

}  // namespace hipplan
