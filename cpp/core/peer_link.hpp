// One device reaching another's ordinary memory. hipDeviceEnablePeerAccess / hipDeviceDisablePeerAccess.
#pragma once

#include <optional>

#include "owned.hpp"

namespace hipplan {

class peer_link : public owned {
 public:
  /// device may reach the memory of peer; one direction only. Nothing when it was on already: then it is
  /// not ours to switch off. Throws hip_error: hipErrorInvalidDevice (not reachable, or the same device).
  [[nodiscard]] static std::optional<peer_link> enable(hip::runtime& runtime, std::string name,
                                                       device_id device, device_id peer);
  peer_link(peer_link&&) noexcept = default;
  ~peer_link() { destroy(*this); }
  /// Throws hip_error; empty afterwards in both cases. Already off (by somebody else) is no failure.
  void release();
  [[nodiscard]] std::string identify() const;

 private:
  peer_link(hip::runtime& runtime, std::string name, device_id device, device_id peer)
      : owned(runtime, std::move(name)), device_(device), peer_(peer) {}

  device_id device_;
  device_id peer_;
};

}  // namespace hipplan
