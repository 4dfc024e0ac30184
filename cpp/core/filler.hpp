// What memory holds: bytes of files, patterns, copies of other memory; and back into files.
//
// Work is cut into pieces. A lane is a thread, a stream of one device and a piece of pinned memory; it takes
// its device's next piece, reads the file into the pinned memory and enqueues the copy. While one lane's copy
// is under way the others read, so two lanes are double buffering, and a device's link is busy with four.
// Host memory needs neither stream nor staging: files are read straight into it.
//
// Files are read with pread, not mapped: one that somebody cuts short meanwhile is an error, not SIGBUS.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "owned.hpp"

namespace hipplan {

/// Where the bytes of a job lie in a file: rows of `row_bytes`, whose beginnings are `stride_bytes` apart.
struct file_rows {
  int descriptor;
  std::uint64_t offset;
  std::size_t row_bytes;
  std::uint64_t stride_bytes;
  std::size_t begin_bytes = 0;  ///< of the rows' bytes, where the job's begin
};

class filler {
 public:
  explicit filler(runtime_ptr runtime) : runtime_(std::move(runtime)) {}

  /// One more lane for a device. staging: pinned memory of piece_bytes; both the caller's.
  void add_lane(device_id device, hip::hipStream_t stream, std::uintptr_t staging, std::size_t piece_bytes);

  // Work, by the lanes of `device`, or (cpu_device) by threads that touch the memory themselves.
  // name: the plan's, for errors. Nothing happens before run().
  void load(std::string name, device_id device, std::uintptr_t address, std::size_t size_bytes,
            file_rows from);
  /// The file must be as long as what is written.
  void save(std::string name, device_id device, std::uintptr_t address, std::size_t size_bytes, file_rows to);
  /// pattern: 1, 2, 4, 8 or 16 bytes, of which size_bytes is a multiple.
  void fill(std::string name, device_id device, std::uintptr_t address, std::size_t size_bytes,
            std::string pattern);
  /// device, from_device: who may write and who may read (cpu_device: host memory). Two devices:
  /// hipMemcpyPeerAsync. staged: each device only copies between its own memory and its lanes' pinned
  /// memory; HIP on AMD may have anything else done by a device that has no right to it.
  void copy(std::string name, device_id device, std::uintptr_t to, device_id from_device, std::uintptr_t from,
            std::size_t size_bytes, bool staged);

  /// Bytes of all jobs.
  [[nodiscard]] std::uint64_t total_bytes() const noexcept;
  /// Does the work and waits for it; what was added is gone then. Up to 4 MiB it is done by this thread, in
  /// the order added; more by the lanes, in any order. tick: called from this thread every 50 ms with the
  /// bytes done so far; what it throws stops the work. Throws hip_error, std::system_error (files),
  /// std::invalid_argument (a short file, a device without lanes).
  void run(const std::function<void(std::uint64_t)>& tick);

 private:
  enum class kind { load, save, fill, copy };
  struct job {
    kind what;
    std::string name;
    device_id device;
    std::uintptr_t address;
    std::size_t size_bytes;
    file_rows rows{};
    std::string pattern;
    device_id from_device = cpu_device;
    std::uintptr_t from = 0;
    bool staged = false;
    bool to_host = false;  ///< of a copy: then `device` is the one that reads
  };
  struct lane {
    device_id device;
    hip::hipStream_t stream;
    std::byte* staging;
    std::size_t piece_bytes;
    std::shared_ptr<std::mutex> in_use{};  ///< while a piece passes through the staging: also other devices'
  };
  struct piece {
    const job* whose;
    std::size_t at;
    std::size_t size_bytes;
  };
  struct queue {
    device_id device;
    std::vector<piece> pieces;
    std::atomic<std::size_t> next{0};
  };

  void run_here(const std::function<void(std::uint64_t)>& tick);
  void cut(queue& out, std::size_t piece_bytes) const;
  [[nodiscard]] std::vector<lane> lanes_of(device_id device) const;
  void work(const lane& on, queue& pieces);
  void do_piece(const lane& on, const piece& part);
  void load_piece(const lane& on, const piece& part);
  void save_piece(const lane& on, const piece& part);
  void fill_piece(const lane& on, const piece& part);
  void copy_piece(const lane& on, const piece& part);
  /// Between host memory and a device's.
  void copy_staged(const lane& on, const piece& part);
  /// From memory of the other lane's device.
  void copy_through(const lane& on, const lane& other, const piece& part);
  [[nodiscard]] lane partner_of(const lane& on, device_id device) const;
  void move(const lane& on, const piece& part, std::uintptr_t to, std::uintptr_t from,
            std::size_t size_bytes);
  void await(const lane& on, const piece& part);

  runtime_ptr runtime_;
  std::vector<lane> lanes_;
  std::vector<job> jobs_;
  std::atomic<std::uint64_t> done_bytes_{0};
  std::atomic<bool> stop_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

}  // namespace hipplan
