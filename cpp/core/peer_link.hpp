// Access of one device to another's ordinary memory. hipDeviceEnablePeerAccess / hipDeviceDisablePeerAccess.
#pragma once

#include "owned.hpp"

namespace hipplan {

class peer_link : public owned {
 public:
  /// Empty.
  peer_link(hip::runtime& runtime, plan_name name, device_id device, device_id peer)
      : owned(runtime, std::move(name)), device_(device), peer_(peer) {}
  /// Lets `device` access the memory of `peer`; one direction only. Stays empty if other code had enabled it:
  /// then release() must not disable it. Throws hip_error: hipErrorInvalidDevice (not reachable, or the same
  /// device).
  void make();
  peer_link(peer_link&&) noexcept = default;
  ~peer_link() { destroy(*this); }
  /// Disables it if no other owner has it. Throws hip_error; empty afterwards in both cases. If other code
  /// has disabled it already, that is no error.
  void release();
  [[nodiscard]] std::string identify() const;

 private:
  device_id device_;
  device_id peer_;
};

}  // namespace hipplan
