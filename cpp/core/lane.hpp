// A lane: one thread's way to a device.
//
// It has two pieces of pinned memory. While the copy of the one is under way the other is read into, or
// written out, so the file and the link are both busy. A lane waits for its stream before it enqueues the
// next copy, so that a stream may serve several lanes and no event is needed. Host memory needs neither
// stream nor staging: the lane's thread touches it itself.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "file_rows.hpp"
#include "owned.hpp"

namespace hipplan {

/// What is to be moved; the lanes of `device` do it.
struct transfer_job {
  enum class kind { load, save, fill, copy };
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

  /// Whether the bytes pass through pinned memory of the lane.
  [[nodiscard]] bool uses_staging() const noexcept;
  /// Whether they pass through that of a lane of `from_device`, too.
  [[nodiscard]] bool passes_two() const noexcept {
    return staged && from_device != cpu_device && from_device != device;
  }
};

/// Some bytes of a job.
struct transfer_piece {
  const transfer_job* whose;
  std::size_t at;
  std::size_t size_bytes;
};

/// What a lane works with; the caller's.
struct lane_memory {
  device_id device;
  hip::hipStream_t stream;
  std::byte* staging;       ///< two pieces
  std::size_t piece_bytes;  ///< of each
  /// Null, or held while bytes for another device pass through the second piece: then the lane itself uses
  /// the first alone.
  std::shared_ptr<std::mutex> in_use{};
};

class lane {
 public:
  /// What to use of another device.
  using partner_of = std::function<const lane_memory&(device_id)>;

  lane(hip::runtime& runtime, lane_memory memory, partner_of partner, const std::atomic<bool>& stop,
       std::atomic<std::uint64_t>& done_bytes)
      : runtime_(runtime),
        memory_(std::move(memory)),
        partner_(std::move(partner)),
        stop_(stop),
        done_bytes_(done_bytes) {}
  /// Waits for the copy that is under way, whatever the runtime says to that: its memory may be used again.
  ~lane();
  lane(const lane&) = delete;
  lane& operator=(const lane&) = delete;

  /// Begins a piece, and ends the one before. Throws hip_error, std::system_error, std::invalid_argument.
  void next(const transfer_piece& part);
  /// Ends what next() began. Throws as next().
  void finish();

 private:
  /// Ends what is under way, when the next has been enqueued.
  void end(std::optional<transfer_piece> next, std::byte* own);
  /// Bytes into the lane's own staging. False: stopped.
  [[nodiscard]] bool prepare(const transfer_piece& part, std::byte* own);
  void fetch_through(const transfer_piece& part, std::byte* own);
  void enqueue(const transfer_piece& part);
  void fill(const transfer_piece& part);
  /// Bytes out of it. False: stopped.
  [[nodiscard]] bool settle(const transfer_piece& part, const std::byte* arrived);
  [[nodiscard]] bool do_on_host(const transfer_piece& part);
  void move(const transfer_piece& part, std::uintptr_t to, std::uintptr_t from, std::size_t size_bytes,
            hip::hipStream_t stream);
  void wait_for(hip::hipStream_t stream, const transfer_piece& part);

  hip::runtime& runtime_;
  lane_memory memory_;
  partner_of partner_;
  const std::atomic<bool>& stop_;
  std::atomic<std::uint64_t>& done_bytes_;
  bool second_ = false;  ///< which piece of the staging is next
  std::optional<transfer_piece> under_way_;
  std::byte* staging_ = nullptr;  ///< of what is under way
};

}  // namespace hipplan
