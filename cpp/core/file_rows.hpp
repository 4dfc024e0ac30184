// Rows of bytes in a file, read and written with pread and pwrite in short calls.
//
// Files are not mapped: so a file that another process truncates causes an error, not SIGBUS. A call moves
// half a MiB at most, so that an interrupt never waits for more.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hipplan {

/// Where the bytes of a job lie in a file: rows of `row_bytes`, whose beginnings are `stride_bytes` apart.
struct file_rows {
  int descriptor;
  std::uint64_t offset;
  std::size_t row_bytes;
  std::uint64_t stride_bytes;
  std::size_t begin_bytes = 0;  ///< where the job begins, counted in the bytes of the rows
};

/// Reads `size_bytes` from the `at`th byte of the rows on; the kernel reads ahead meanwhile. Returns false if
/// stopped. Throws std::system_error, std::invalid_argument (a short file).
[[nodiscard]] bool read_rows(const file_rows& rows, std::size_t at, std::byte* to, std::size_t size_bytes,
                             const std::atomic<bool>& stop);
/// Returns false if stopped. Throws std::system_error.
[[nodiscard]] bool write_rows(const file_rows& rows, std::size_t at, const std::byte* from,
                              std::size_t size_bytes, const std::atomic<bool>& stop);

}  // namespace hipplan
