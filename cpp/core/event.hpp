// An event in a stream, to find out whether the work before it is done. hipEventCreateWithFlags /
// hipEventDestroy.
#pragma once

#include "owned.hpp"

namespace hipplan {

class event : public owned {
 public:
  /// Empty. name: the plan's name of the object that the work is for.
  event(hip::runtime& runtime, plan_name name) : owned(runtime, std::move(name)) {}
  /// Throws hip_error: hipErrorInvalidDevice, hipErrorOutOfMemory.
  void make(device_id device);
  event(event&&) noexcept = default;
  ~event() { destroy(*this); }
  void release();
  [[nodiscard]] hip::hipEvent_t get() const noexcept { return event_; }
  [[nodiscard]] std::string identify() const;

 private:
  hip::hipEvent_t event_{};
};

}  // namespace hipplan
