// What memory holds: bytes of files, patterns, copies of other memory; and back into files.
//
// Work is cut into pieces, which the lanes of their device take one after the other: all devices at once,
// each with several threads (lane.hpp). How many: the processors that this process may use, shared between
// the devices; how large a piece: what the staging given for a device has room for.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "lane.hpp"

namespace hipplan {

class filler {
 public:
  /// processors: how many threads there may be in all, about; 0: as this process may use.
  explicit filler(runtime_ptr runtime, unsigned processors = 0)
      : runtime_(std::move(runtime)), processors_(processors) {}

  /// What to reach a device with. staging: pinned memory; all of it the caller's.
  void add_device(device_id device, std::vector<hip::hipStream_t> streams, std::uintptr_t staging,
                  std::size_t staging_bytes);

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
  /// the order added; more by the lanes, in any order. tick: called from this thread every 25 ms with the
  /// bytes done so far; what it throws stops the work. Throws hip_error, std::system_error (files),
  /// std::invalid_argument (a short file, a device without lanes).
  void run(const std::function<void(std::uint64_t)>& tick);

 private:
  struct way {
    device_id device;
    std::vector<hip::hipStream_t> streams;
    std::byte* staging;
    std::size_t staging_bytes;
  };
  /// The work for a device, and its lane.
  struct share {
    explicit share(device_id whose) : device(whose) {}
    device_id device;
    std::vector<lane_memory> lanes{};
    std::vector<transfer_piece> pieces{};
    std::atomic<std::size_t> next{0};
  };

  void run_here(std::deque<share>& all, const std::function<void(std::uint64_t)>& tick);
  /// One for each device with jobs or staging.
  [[nodiscard]] std::deque<share> shares() const;
  [[nodiscard]] std::vector<lane_memory> lanes_to(const way& to, std::size_t count_max, bool lends) const;
  void cut(share& out) const;
  /// Of a lane's number: the lane whose staging it may use, of each other device.
  [[nodiscard]] static lane::partner_of partner(const std::deque<share>& all, std::size_t number);
  void work(const std::deque<share>& all, share& mine, std::size_t number);

  runtime_ptr runtime_;
  unsigned processors_;
  std::vector<way> ways_;
  std::vector<transfer_job> jobs_;
  std::atomic<std::uint64_t> done_bytes_{0};
  std::atomic<bool> stop_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

}  // namespace hipplan
