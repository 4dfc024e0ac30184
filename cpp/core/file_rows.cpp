#include "file_rows.hpp"

#include <fcntl.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <stdexcept>
#include <system_error>

namespace hipplan {
namespace {

constexpr std::size_t call_bytes = std::size_t{512} << 10;
/// Gaps up to this size are read together with the rows around them: that costs less than another call.
constexpr std::size_t gap_bytes_max = std::size_t{8} << 10;
constexpr std::size_t vectors_max = 512;

/// Splits a part of the rows into contiguous runs of at most call_bytes, and calls use(offset in the file,
/// offset in the part, bytes) for each. Returns false if `stop` became true.
template <class Use>
bool for_each_run(const file_rows& rows, std::size_t at, std::size_t size_bytes,
                  const std::atomic<bool>& stop, Use use) {
  at += rows.begin_bytes;
  for (std::size_t done = 0; done < size_bytes;) {
    if (stop) return false;
    const auto row = (at + done) / rows.row_bytes;
    const auto column = (at + done) % rows.row_bytes;
    const auto run = std::min({rows.row_bytes - column, size_bytes - done, call_bytes});
    use(rows.offset + row * rows.stride_bytes + column, done, run);
    done += run;
  }
  return true;
}

/// Collects runs of bytes that are close to each other in a file, to read them with one preadv.
class near_runs {
 public:
  explicit near_runs(int descriptor) noexcept : descriptor_(descriptor) {}

  /// Throws as read().
  void add(std::uint64_t offset, std::byte* to, std::size_t size_bytes) {
    const bool starts_anew = offset < end_ || offset - end_ > gap_bytes_max;
    if (starts_anew || count_ + 2 > vectors_max || end_ - begin_ + size_bytes > call_bytes) read();
    if (count_ == 0) {
      begin_ = offset;
      if (offset >= advised_to_) advise(offset);
    } else if (offset > end_) {
      vectors_[count_++] = {between_.data(), offset - end_};
    }
    vectors_[count_++] = {to, size_bytes};
    end_ = offset + size_bytes;
  }

  /// Throws std::system_error, std::invalid_argument (a short file).
  void read() {
    auto* next = vectors_.data();
    auto* const last = next + count_;
    for (auto offset = begin_; offset < end_;) {
      const auto got = preadv(descriptor_, next, static_cast<int>(last - next), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw std::system_error(errno, std::generic_category(), "reading");
      if (got == 0) throw std::invalid_argument("the file became shorter while it was read");
      offset += static_cast<std::uint64_t>(got);
      for (auto rest = static_cast<std::size_t>(got); rest > 0;) {
        const auto taken = std::min(rest, next->iov_len);
        next->iov_base = static_cast<std::byte*>(next->iov_base) + taken;
        next->iov_len -= taken;
        rest -= taken;
        if (next->iov_len == 0) ++next;
      }
    }
    count_ = 0;
    begin_ = end_;
  }

 private:
  /// Lets the kernel read the bytes of this call and the next ahead.
  void advise(std::uint64_t offset) noexcept {
    advised_to_ = offset + call_bytes;
    (void)posix_fadvise(descriptor_, static_cast<off_t>(offset), 2 * call_bytes, POSIX_FADV_WILLNEED);
  }

  int descriptor_;
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
  std::uint64_t advised_to_ = 0;
  std::size_t count_ = 0;
  std::array<iovec, vectors_max> vectors_;
  std::array<std::byte, gap_bytes_max> between_;
};

void write_exactly(int descriptor, std::uint64_t offset, const std::byte* from, std::size_t size_bytes) {
  while (size_bytes > 0) {
    const auto put = pwrite(descriptor, from, size_bytes, static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw std::system_error(errno, std::generic_category(), "writing");
    const auto count = static_cast<std::size_t>(put);
    from += count;
    offset += count;
    size_bytes -= count;
  }
}

}  // namespace

bool read_rows(const file_rows& rows, std::size_t at, std::byte* to, std::size_t size_bytes,
               const std::atomic<bool>& stop) {
  near_runs runs(rows.descriptor);
  const bool all = for_each_run(rows, at, size_bytes, stop,
                                [&](auto offset, auto done, auto run) { runs.add(offset, to + done, run); });
  if (all) runs.read();
  return all;
}

bool write_rows(const file_rows& rows, std::size_t at, const std::byte* from, std::size_t size_bytes,
                const std::atomic<bool>& stop) {
  return for_each_run(rows, at, size_bytes, stop, [&](auto offset, auto done, auto run) {
    write_exactly(rows.descriptor, offset, from + done, run);
  });
}

}  // namespace hipplan
