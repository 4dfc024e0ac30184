// Real memory behind simulated devices: sparse memory files, read and written by offset.
//
// One file contains all ordinary memory of a device, so 100,000 allocations cost one descriptor; only memory
// that may be shared with another process has a file of its own. Copies map nothing: they use pread and
// pwrite, for which an invalid host pointer is EFAULT, not SIGSEGV.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

namespace hipsim {

/// What a copy through a buffer moves at once.
inline constexpr std::size_t bounce_bytes = std::size_t{1} << 20;

/// The CPU cannot read or write the caller's pointer.
struct bad_host_pointer : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// How another process of this user finds a memory_file. A descriptor's number may be another file's later,
/// so the name says which file it is.
struct shared_file {
  pid_t process = 0;
  int descriptor = -1;
  std::uint64_t identity = 0;
};

class memory_file {
 public:
  /// Throws std::system_error (EMFILE and ENFILE: no descriptor left; EFBIG: RLIMIT_FSIZE forbids it).
  memory_file(const std::string& owner, std::uint64_t bytes);
  /// Duplicates a descriptor of another memory_file, maybe of another process.
  [[nodiscard]] static std::shared_ptr<memory_file> duplicate(int descriptor);
  /// The file of a process that is alive and still has it; null: there is no such file.
  [[nodiscard]] static std::shared_ptr<memory_file> open(const shared_file& name);
  ~memory_file();
  memory_file(const memory_file&) = delete;
  memory_file& operator=(const memory_file&) = delete;

  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] std::uint64_t bytes() const;
  /// Same for every descriptor of one file, in every process.
  [[nodiscard]] std::uint64_t identity() const;

  [[nodiscard]] shared_file name() const;

  /// Whether a number is an open descriptor of this file.
  [[nodiscard]] bool is_behind(int descriptor) const;
  /// A descriptor for another process; -1: there is none left.
  [[nodiscard]] int share() const;
  /// Whether any process still has such a descriptor, or has imported it.
  [[nodiscard]] bool is_shared() const;

  void read(std::uint64_t offset, void* to, std::size_t bytes) const;
  void write(std::uint64_t offset, const void* from, std::size_t bytes);
  /// The offset of the next written bytes; `end` if there are none before it.
  [[nodiscard]] std::uint64_t written_from(std::uint64_t offset, std::uint64_t end) const noexcept;
  /// The offset where written bytes end.
  [[nodiscard]] std::uint64_t unwritten_from(std::uint64_t offset, std::uint64_t end) const noexcept;
  /// Frees the pages; they read as zero afterwards. Returns false if the kernel refused.
  bool discard(std::uint64_t offset, std::uint64_t bytes) noexcept;

 private:
  explicit memory_file(int owned_descriptor) : descriptor_(owned_descriptor) {}
  int descriptor_;
};

/// The owner of a simulator's memory file ("" for any other descriptor): a device's UUID in hex, which does
/// not depend on a process's visibility mask, or "host".
[[nodiscard]] std::string owner_of_memory_file(int descriptor);

/// A part of a memory file. Its destructor frees the pages.
class extent {
 public:
  extent() = default;
  extent(std::shared_ptr<memory_file> file, std::uint64_t offset, std::uint64_t bytes)
      : file_(std::move(file)), offset_(offset), bytes_(bytes) {}
  extent(extent&& other) noexcept = default;
  extent& operator=(extent&& other) noexcept {
    std::swap(file_, other.file_);
    std::swap(offset_, other.offset_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~extent() {
    // A file that only this extent uses is freed with its last descriptor, which may be in another process.
    // If discard fails, unreachable pages stay committed.
    if (file_ && file_.use_count() > 1) (void)file_->discard(offset_, bytes_);
  }

  /// Moves the bytes into a file of their own, of which a descriptor can be handed out.
  void move_to_own_file(const std::string& owner);

  [[nodiscard]] memory_file* file() const { return file_.get(); }
  [[nodiscard]] std::uint64_t offset() const { return offset_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<memory_file> file_;
  std::uint64_t offset_ = 0;
  std::uint64_t bytes_ = 0;
};

/// All ordinary memory of one location. Offsets are never reused: 2^62 bytes outlast any process. Successive
/// allocations are contiguous, so that the kernel merges their mappings.
class memory_pool {
 public:
  explicit memory_pool(std::string owner) : owner_(std::move(owner)) {}
  [[nodiscard]] extent take(std::uint64_t bytes);

 private:
  std::string owner_;
  std::shared_ptr<memory_file> file_;
  std::uint64_t next_ = 0;
};

}  // namespace hipsim
