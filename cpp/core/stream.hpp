// A queue of work on one device. hipStreamCreateWithFlags / hipStreamDestroy.
#pragma once

#include "owned.hpp"

namespace hipplan {

class stream : public owned {
 public:
  /// Non-blocking: it does not wait for the device's null stream.
  /// Throws hip_error: hipErrorInvalidDevice, hipErrorOutOfMemory.
  [[nodiscard]] static stream create(hip::runtime& runtime, std::string name, device_id device);
  stream(stream&&) noexcept = default;
  ~stream() { destroy(*this); }
  void release();
  [[nodiscard]] hip::hipStream_t get() const noexcept { return stream_; }
  [[nodiscard]] std::string identify() const;

 private:
  stream(hip::runtime& runtime, std::string name, hip::hipStream_t native)
      : owned(runtime, std::move(name)), stream_(native) {}

  hip::hipStream_t stream_;
};

}  // namespace hipplan
