#include "checksum.hpp"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <span>
#include <system_error>

namespace hipplan {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::size_t words_of_block = 256;
constexpr std::size_t block_bytes = words_of_block * sizeof(std::uint64_t);
/// Of a word's factor: the sum of 256 products with words fits into 128 bits.
constexpr int factor_bits = 56;
constexpr checksum prime = (checksum{1} << 127) - 1;

/// Any number of 128 bits modulo the prime.
constexpr checksum reduced(checksum number) noexcept {
  const auto once = (number & prime) + (number >> 127);
  return once >= prime ? once - prime : once;
}

/// The product of two numbers below the prime.
constexpr checksum product(checksum one, checksum other) noexcept {
  const auto one_low = static_cast<std::uint64_t>(one), one_high = static_cast<std::uint64_t>(one >> 64);
  const auto low = static_cast<std::uint64_t>(other), high = static_cast<std::uint64_t>(other >> 64);
  const auto lowest = checksum{one_low} * low;
  const auto middle = checksum{one_high} * low + checksum{one_low} * high;  // each is below 2^127
  const auto lower = lowest + (middle << 64);
  const auto upper = checksum{one_high} * high + (middle >> 64) + (lower < lowest ? 1 : 0);
  return reduced((lower & prime) + (lower >> 127) + (upper << 1));  // 2^128 is 2; the sum is below 2^128
}

constexpr checksum power(checksum base, std::uint64_t exponent) noexcept {
  checksum out = 1;
  for (; exponent != 0; exponent >>= 1) {
    if (exponent & 1) out = product(out, base);
    base = product(base, base);
  }
  return out;
}

/// Random numbers of this process.
struct secret {
  std::array<std::uint64_t, words_of_block> factors;
  checksum point;

  secret() {
    auto left = std::as_writable_bytes(std::span(this, 1));
    while (!left.empty()) {
      const auto got = getrandom(left.data(), left.size(), 0);
      if (got < 0 && errno != EINTR) throw std::system_error(errno, std::generic_category(), "getrandom");
      if (got > 0) left = left.subspan(static_cast<std::size_t>(got));
    }
    for (auto& factor : factors) factor >>= 64 - factor_bits;
    point = reduced(point);
  }
};

checksum of_block(const secret& key, const std::byte* bytes) noexcept {
  checksum out = 0;
  for (std::size_t at = 0; at < words_of_block; ++at) {
    std::uint64_t word;
    std::memcpy(&word, bytes + at * sizeof word, sizeof word);
    out += checksum{word} * key.factors[at];
  }
  return reduced(out);
}

}  // namespace

checksum sum_of(checksum one, checksum other) noexcept { return reduced(one + other); }

checksum checksum_of(std::uint64_t position, const std::byte* bytes, std::size_t size_bytes) {
  static const secret key;
  if (size_bytes == 0) return 0;
  const auto first = position / block_bytes, last = (position + size_bytes - 1) / block_bytes;
  checksum out = 0;
  for (auto number = last + 1; number-- > first;) {  // Horner's rule
    const auto begin = std::max(position, number * block_bytes);
    const auto end = std::min(position + size_bytes, (number + 1) * block_bytes);
    const auto* from = bytes + (begin - position);
    std::array<std::byte, block_bytes> part;
    if (end - begin < block_bytes) {  // the first or last block: zeros stand for the rest
      part.fill(std::byte{0});
      std::memcpy(part.data() + begin % block_bytes, from, end - begin);
      from = part.data();
    }
    out = sum_of(product(out, key.point), of_block(key, from));
  }
  return product(out, power(key.point, first));
}

}  // namespace hipplan
