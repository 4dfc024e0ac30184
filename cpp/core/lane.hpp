// A lane: how one thread copies to and from a device, and computes checksums on the way.
//
// It has two pieces of pinned memory. While one is copied by the device, the other is read from a file or
// written to it, so the file and the link are both busy. A lane waits for its stream before it enqueues the
// next copy: so several lanes can share a stream, without events. Host memory needs neither stream nor
// staging: the lane's thread accesses it itself.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "checksum.hpp"
#include "file_rows.hpp"
#include "owned.hpp"

namespace hipplan {

/// Bytes to move; the lanes of `device` do it.
struct transfer_job {
  enum class kind { load, save, fill, copy, sum };
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
  bool to_host = false;  ///< a copy to host memory: then `device` is the one that reads
  /// The number of the checksum of a load, a save or a sum, at its position in the file.
  std::optional<std::size_t> sum{};

  /// Whether the bytes pass through the lane's pinned memory.
  [[nodiscard]] bool uses_staging() const noexcept;
  /// Whether they also pass through the pinned memory of a lane of `from_device`.
  [[nodiscard]] bool passes_two() const noexcept {
    return staged && from_device != cpu_device && from_device != device;
  }
};

/// A part of a job.
struct transfer_piece {
  const transfer_job* job;
  std::size_t at;
  std::size_t size_bytes;
};

/// The stream and the staging memory of a lane, which belong to the caller.
struct lane_memory {
  device_id device;
  hip::hipStream_t stream;
  std::byte* staging;       ///< two pieces
  std::size_t piece_bytes;  ///< of each
  /// Locked while a lane of another device uses the second piece; then this lane uses only the first. Null if
  /// no job needs that.
  std::shared_ptr<std::mutex> in_use{};
};

class lane {
 public:
  /// Returns the lane memory to use of another device.
  using partner_of = std::function<const lane_memory&(device_id)>;

  lane(hip::runtime& runtime, lane_memory memory, partner_of partner, const std::atomic<bool>& stop,
       std::atomic<std::uint64_t>& done_bytes, checksums& sums)
      : runtime_(runtime),
        memory_(std::move(memory)),
        partner_(std::move(partner)),
        stop_(stop),
        done_bytes_(done_bytes),
        sums_(sums) {}
  /// Waits for the copy under way, and ignores errors: the caller may reuse the memory.
  ~lane();
  lane(const lane&) = delete;
  lane& operator=(const lane&) = delete;

  /// Begins a piece, and ends the one before. Throws hip_error, std::system_error, std::invalid_argument.
  void next(const transfer_piece& piece);
  /// Ends the last piece. Throws as next().
  void finish();

 private:
  /// Waits for the piece under way, enqueues the next, then writes the finished one out.
  void end(std::optional<transfer_piece> next, std::byte* own);
  /// Brings a piece's bytes into the lane's staging. Returns false if stopped.
  [[nodiscard]] bool prepare(const transfer_piece& piece, std::byte* own);
  void fetch_through(const transfer_piece& piece, std::byte* own);
  void enqueue(const transfer_piece& piece);
  void fill(const transfer_piece& piece);
  /// Takes a piece's bytes out of it. Returns false if stopped.
  [[nodiscard]] bool settle(const transfer_piece& piece, const std::byte* arrived);
  [[nodiscard]] bool do_on_host(const transfer_piece& piece);
  /// Loads or saves a piece, between its file and host memory, and adds it to its checksum. False if stopped.
  [[nodiscard]] bool load(const transfer_piece& piece, std::byte* to);
  [[nodiscard]] bool save(const transfer_piece& piece, const std::byte* from);
  /// Adds a piece of a file, or of memory, to its checksum. Returns false if stopped.
  [[nodiscard]] bool sum(const transfer_piece& piece);
  void add(const transfer_piece& piece, const std::byte* bytes);
  void move(const transfer_piece& piece, std::uintptr_t to, std::uintptr_t from, std::size_t size_bytes,
            hip::hipStream_t stream);
  void wait_for(hip::hipStream_t stream, const transfer_piece& piece);

  hip::runtime& runtime_;
  lane_memory memory_;
  partner_of partner_;
  const std::atomic<bool>& stop_;
  std::atomic<std::uint64_t>& done_bytes_;
  checksums& sums_;
  bool second_ = false;  ///< which piece of the staging is next
  std::optional<transfer_piece> under_way_;
  std::byte* staging_ = nullptr;  ///< of the piece under way
};

}  // namespace hipplan
