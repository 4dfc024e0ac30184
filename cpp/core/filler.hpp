// Fills memory: with bytes of files, patterns, copies of other memory; and saves it to files. Computes
// checksums.
//
// Work is divided into pieces, which the lanes of their device take one after the other: all devices at once,
// each with several threads (lane.hpp). The number of threads is that of the processors that this process may
// use, shared between the devices; the size of a piece follows from a device's staging memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lane.hpp"

namespace hipplan {

class filler {
 public:
  /// processors: about how many threads to use in total; 0: as many as this process may use.
  explicit filler(runtime_ptr runtime, unsigned processors = 0)
      : runtime_(std::move(runtime)), processors_(processors) {}

  /// Adds a device with its streams. staging: pinned memory. All of it stays the caller's.
  void add_device(device_id device, std::vector<hip::hipStream_t> streams, std::uintptr_t staging,
                  std::size_t staging_bytes);

  // Add work for the lanes of `device`, or (cpu_device) for threads that access the memory themselves.
  // name: the plan's, for errors. Nothing happens before run().
  // sum: the number of the checksum to which the bytes are added; their rows must lie side by side.
  // each_bytes: of each allocation, where there are several: one after the other they have jobs and checksums
  // of their own, numbered from `sum` on. 0: all is one job.
  void load(std::string name, device_id device, std::uintptr_t address, std::size_t size_bytes,
            file_rows from, std::optional<std::size_t> sum = {}, std::size_t each_bytes = 0);
  /// The file must be as long as what is written.
  void save(std::string name, device_id device, std::uintptr_t address, std::size_t size_bytes, file_rows to,
            std::optional<std::size_t> sum = {}, std::size_t each_bytes = 0);
  /// pattern: 1, 2, 4, 8 or 16 bytes, of which size_bytes is a multiple.
  void fill(std::string name, device_id device, std::uintptr_t address, std::size_t size_bytes,
            std::string pattern);
  /// device, from_device: the devices that may write and read (cpu_device: host memory). Two devices:
  /// hipMemcpyPeerAsync. staged: each device only copies between its own memory and its lanes' pinned
  /// memory; for other copies HIP on AMD may choose a device that has no right to the memory.
  void copy(std::string name, device_id device, std::uintptr_t to, device_id from_device, std::uintptr_t from,
            std::size_t size_bytes, bool staged);

  /// Adds bytes of a file to a checksum; descriptor -1: of host memory, whose positions are those of `from`.
  void sum(std::string name, std::uintptr_t address, std::size_t size_bytes, file_rows from, std::size_t sum,
           std::size_t each_bytes = 0);

  /// Bytes of all jobs.
  [[nodiscard]] std::uint64_t total_bytes() const noexcept;
  /// Does the work and waits for it; afterwards the filler is empty. Up to 4 MiB this thread does it, in the
  /// order added; else the lanes do, in any order. tick: called from this thread every 25 ms with the bytes
  /// done so far; its exception stops the work. Throws hip_error, std::system_error (files),
  /// std::invalid_argument (a short file, a device without lanes).
  void run(const std::function<void(std::uint64_t)>& tick);
  /// The checksums of the last run, by number; once.
  [[nodiscard]] std::vector<checksum> take_sums() { return sums_.take(); }

 private:
  struct device_resources {
    device_id device;
    std::vector<hip::hipStream_t> streams;
    std::byte* staging;
    std::size_t staging_bytes;
  };
  /// The work for a device, and its lanes.
  struct device_work {
    explicit device_work(device_id whose) : device(whose) {}
    device_id device;
    std::vector<lane_memory> lanes{};
    std::vector<transfer_piece> pieces{};
    std::atomic<std::size_t> next{0};
  };

  void add(const transfer_job& job, std::size_t each_bytes);
  void run_here(std::deque<device_work>& all, const std::function<void(std::uint64_t)>& tick);
  /// Divides the jobs: an entry for each device with jobs or staging.
  [[nodiscard]] std::deque<device_work> work_by_device() const;
  [[nodiscard]] std::vector<lane_memory> lanes_to(const device_resources& to, std::size_t count_max,
                                                  bool lends) const;
  void add_pieces(device_work& out) const;
  /// Finds, for a lane's number, the lane of another device whose staging it may use.
  [[nodiscard]] static lane::partner_of partner(const std::deque<device_work>& all, std::size_t number);
  void run_lane(const std::deque<device_work>& all, device_work& queue, std::size_t number);

  runtime_ptr runtime_;
  unsigned processors_;
  std::vector<device_resources> devices_;
  std::vector<transfer_job> jobs_;
  checksums sums_;
  std::atomic<std::uint64_t> done_bytes_{0};
  std::atomic<bool> stop_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

}  // namespace hipplan
