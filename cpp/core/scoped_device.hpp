// Makes a device current for a scope and puts the caller's own choice back.
//
// hipMemCreate takes its memory from the pool of the current device in 7.x, whatever the properties say,
// and hipMalloc, peers and streams work on the current device by definition.
#pragma once

#include "hip/runtime.hpp"
#include "units.hpp"

namespace hipplan {

class scoped_device {
 public:
  /// Throws hip_error: hipErrorInvalidDevice.
  scoped_device(hip::runtime& runtime, device_id device);
  /// Tries twice; a failure is reported to the leak log.
  ~scoped_device();
  scoped_device(const scoped_device&) = delete;
  scoped_device& operator=(const scoped_device&) = delete;

 private:
  hip::runtime& runtime_;
  int previous_ = 0;
  bool changed_ = false;
};

}  // namespace hipplan
