// Copies and fills that stand in a stream, and an event behind them: who enqueues them does not wait.
//
// The memory has to stay until done() says so, or the object is gone: its destructor waits. Where a call
// fails, what is in the stream already is waited for before the error is thrown.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "event.hpp"

namespace hipplan {

class queued_work {
 public:
  /// device: who does it. from_device, to_device: who holds the bytes (cpu_device: host memory).
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

  /// Enqueues all of it in a stream of `device`. Throws hip_error, and std::bad_alloc; then nothing of it is
  /// under way.
  [[nodiscard]] static std::unique_ptr<queued_work> begin(runtime_ptr runtime, std::string name,
                                                          device_id device, hip::hipStream_t stream,
                                                          const std::vector<copy>& copies,
                                                          const std::vector<fill>& fills);
  queued_work(const queued_work&) = delete;
  queued_work& operator=(const queued_work&) = delete;
  ~queued_work();

  /// Whether all of it is done. Throws hip_error, each time, where the device has failed; it is done then.
  [[nodiscard]] bool done();

 private:
  queued_work(runtime_ptr runtime, std::string name, device_id device, hip::hipStream_t stream);
  void enqueue(const copy& one);
  void enqueue(const fill& one);
  void mark();
  void begun(hip::hipError_t result, const char* call, std::uintptr_t to, std::uintptr_t from,
             std::size_t size_bytes);
  void give_up() noexcept;
  void release_event() noexcept;

  runtime_ptr runtime_;
  event event_;
  device_id device_;
  hip::hipStream_t stream_;
  std::list<std::string> patterns_;  ///< read by copies; a list: they do not move
  bool marked_ = false;
  bool done_ = false;
  std::optional<hip::hip_error> failure_;
};

}  // namespace hipplan
