// Copies and fills that are enqueued in a stream, with an event after them: the caller does not wait.
//
// The memory must stay until done() returns true, or this object is destroyed: its destructor waits. If a
// call fails, begin() waits for the work that is already in the stream before it throws.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "event.hpp"

namespace hipplan {

class queued_work {
 public:
  /// to_device, from_device: the devices that have the memory (cpu_device: host memory).
  struct copy {
    std::uintptr_t to;
    device_id to_device;
    std::uintptr_t from;
    device_id from_device;
    std::size_t size_bytes;
  };
  /// pattern: 1, 2, 4, 8 or 16 bytes, of which size_bytes is a multiple.
  struct fill {
    std::uintptr_t address;
    std::size_t size_bytes;
    std::string pattern;
  };

  /// Enqueues all of it in a stream of `device`. Throws hip_error, std::bad_alloc; then none of it is under
  /// way.
  [[nodiscard]] static std::unique_ptr<queued_work> begin(runtime_ptr runtime, std::string name,
                                                          device_id device, hip::hipStream_t stream,
                                                          const std::vector<copy>& copies,
                                                          const std::vector<fill>& fills);
  queued_work(const queued_work&) = delete;
  queued_work& operator=(const queued_work&) = delete;
  ~queued_work();

  /// Whether all of it is done, from any thread; false also while another one asks. Throws hip_error, at each
  /// call, if the device has failed.
  [[nodiscard]] bool done();

 private:
  queued_work(runtime_ptr runtime, std::string name, device_id device, hip::hipStream_t stream);
  void enqueue(const copy& item);
  void enqueue(const fill& item);
  void mark();
  void check_enqueued(hip::hipError_t result, const char* call, std::uintptr_t to, std::uintptr_t from,
                      std::size_t size_bytes);
  void wait_anyway() noexcept;
  void release_event() noexcept;

  runtime_ptr runtime_;
  std::mutex asks_;  ///< only one thread may find it done: that one releases the event
  event event_;
  device_id device_;
  hip::hipStream_t stream_;
  std::list<std::string> patterns_;  ///< copies read from them; a list, so that they do not move
  bool marked_ = false;
  bool done_ = false;
  std::optional<hip::hip_error> failure_;
};

}  // namespace hipplan
