// A queue of work on one device. hipStreamCreateWithFlags / hipStreamDestroy.
#pragma once

#include "owned.hpp"

namespace hipplan {

class stream : public owned {
 public:
  /// Empty.
  stream(hip::runtime& runtime, plan_name name) : owned(runtime, std::move(name)) {}
  /// Non-blocking: it does not wait for the device's null stream.
  /// Throws hip_error: hipErrorInvalidDevice, hipErrorOutOfMemory.
  void make(device_id device);
  stream(stream&&) noexcept = default;
  ~stream() { destroy(*this); }
  void release();
  [[nodiscard]] hip::hipStream_t get() const noexcept { return stream_; }
  [[nodiscard]] std::string identify() const;

 private:
  hip::hipStream_t stream_{};
};

}  // namespace hipplan
