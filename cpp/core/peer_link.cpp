#include "peer_link.hpp"

#include "scoped_device.hpp"

namespace hipplan {

void peer_link::make() {
  const scoped_device current(runtime(), device_);
  const auto result = runtime().hipDeviceEnablePeerAccess(peer_.value, 0);
  if (result == hip::hipErrorPeerAccessAlreadyEnabled) return runtime().forget_last_error();
  runtime().check(result, "hipDeviceEnablePeerAccess", [&] {
    return std::pair(identify(),
                     "peer=" + std::to_string(peer_.value) + " with " + text(device_) + " current");
  });
  fill();
}

void peer_link::release() {
  const auto disable = [&] {
    const scoped_device current(runtime(), device_);
    const auto result = runtime().hipDeviceDisablePeerAccess(peer_.value);
    if (result != hip::hipErrorPeerAccessNotEnabled) return result;
    runtime().forget_last_error();
    return hip::hipSuccess;
  };
  check_release(release_once(disable), "hipDeviceDisablePeerAccess",
                [&] { return std::pair(identify(), "peer=" + std::to_string(peer_.value)); });
}

std::string peer_link::identify() const {
  return "peer access '" + name() + "' of " + text(device_) + " to " + text(peer_);
}

}  // namespace hipplan
