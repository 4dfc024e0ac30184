#include "peer_link.hpp"

#include "scoped_device.hpp"

namespace hipplan {
namespace {

std::string describe(const std::string& name, device_id device, device_id peer) {
  return "peer access '" + name + "' of " + text(device) + " to " + text(peer);
}

}  // namespace

std::optional<peer_link> peer_link::enable(hip::runtime& runtime, std::string name, device_id device,
                                           device_id peer) {
  const scoped_device current(runtime, device);
  const auto result = runtime.hipDeviceEnablePeerAccess(peer.value, 0);
  if (result == hip::hipErrorPeerAccessAlreadyEnabled) {
    runtime.forget_last_error();
    return std::nullopt;
  }
  runtime.check(result, "hipDeviceEnablePeerAccess", [&] {
    return std::pair(describe(name, device, peer),
                     "peer=" + std::to_string(peer.value) + " with " + text(device) + " current");
  });
  return peer_link(runtime, std::move(name), device, peer);
}

void peer_link::release() {
  const auto disable = [&] {
    const scoped_device current(runtime(), device_);
    const auto result = runtime().hipDeviceDisablePeerAccess(peer_.value);
    if (result != hip::hipErrorPeerAccessNotEnabled) return result;
    runtime().forget_last_error();
    return hip::hipSuccess;
  };
  answered(once(disable), "hipDeviceDisablePeerAccess",
           [&] { return std::pair(identify(), "peer=" + std::to_string(peer_.value)); });
}

std::string peer_link::identify() const { return describe(name(), device_, peer_); }

}  // namespace hipplan
