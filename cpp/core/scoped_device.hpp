// Makes a device current for a scope, then restores the caller's.
//
// A nested scope of the same device, on the same thread, costs no driver call: so a batch opens one around
// all its steps of a device.
//
// hipMemCreate in HIP 7.x allocates from the pool of the current device, not of the one in the properties;
// hipMalloc, peers and streams work on the current device by definition.
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
  void make_current();

  hip::runtime& runtime_;
  const device_id device_;
  const scoped_device* const outer_;  ///< the thread's innermost scope before this one
  int previous_ = 0;
  bool changed_ = false;
};

}  // namespace hipplan
