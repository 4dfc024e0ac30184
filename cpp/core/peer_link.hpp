// One device reaching another's ordinary memory. hipDeviceEnablePeerAccess / hipDeviceDisablePeerAccess.
#pragma once

#include "owned.hpp"

namespace hipplan {

class peer_link : public owned {
 public:
  /// Empty.
  peer_link(hip::runtime& runtime, plan_name name, device_id device, device_id peer)
      : owned(runtime, std::move(name)), device_(device), peer_(peer) {}
  /// device may reach the memory of peer; one direction only. Still empty when it was on already: then it is
  /// not ours to switch off. Throws hip_error: hipErrorInvalidDevice (not reachable, or the same device).
  void make();
  peer_link(peer_link&&) noexcept = default;
  ~peer_link() { destroy(*this); }
  /// Throws hip_error; empty afterwards in both cases. Already off (by somebody else) is no failure.
  void release();
  [[nodiscard]] std::string identify() const;

 private:
  device_id device_;
  device_id peer_;
};

}  // namespace hipplan
