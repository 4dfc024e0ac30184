// Frees pinned memory behind the caller: on a thread of its own, without the layout's mutex.
//
// hipHostFree of 8 GiB takes 0.8 s. Only copies of sleeping bytes are freed so: no device uses them once
// hipplan's own copies have ended, so that no device is waited for either.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "buffers/pinned.hpp"
#include "described.hpp"

namespace hipplan {

struct undo_report;

class freed_behind {
 public:
  /// room: for so many buffers. contents: these in words. Throws std::bad_alloc.
  freed_behind(runtime_ptr runtime, std::size_t room, std::vector<described> contents = {});
  freed_behind(const freed_behind&) = delete;
  freed_behind& operator=(const freed_behind&) = delete;
  ~freed_behind();

  /// Takes a buffer out of its owner, which is empty afterwards.
  void take(pinned_buffer&& from) noexcept { buffers_.push_back(std::move(from)); }
  [[nodiscard]] bool empty() const noexcept { return buffers_.empty(); }
  /// Begins to free them. If no thread can be started, the caller frees them.
  static void begin(const std::shared_ptr<freed_behind>& what) noexcept;

  /// Returns true when all of them are freed or have failed, false at the time limit. Always true in a forked
  /// child.
  [[nodiscard]] bool wait_until(std::chrono::steady_clock::time_point until) const;
  /// Adds what could not be freed to a report, once all have ended. Throws std::bad_alloc, and adds nothing
  /// then.
  void report_into(undo_report& report) const;
  /// The same to the leak log.
  void log_failures() const noexcept;
  /// The buffers, freed or not.
  [[nodiscard]] const std::vector<described>& contents() const noexcept { return contents_; }

  /// wait_until() for everything in this process that is being freed.
  [[nodiscard]] static bool all_done_until(std::chrono::steady_clock::time_point until);

 private:
  void run() noexcept;

  runtime_ptr runtime_;
  std::vector<pinned_buffer> buffers_;
  std::vector<described> contents_;
  std::unique_ptr<undo_report> report_;
  mutable std::mutex mutex_;
  mutable std::condition_variable ended_;
  bool done_ = false;
};

}  // namespace hipplan
