#include "peer_link.hpp"

#include <map>
#include <mutex>
#include <tuple>

#include "scoped_device.hpp"

namespace hipplan {
namespace {

/// The links that owners of this process have enabled.
struct shared_links {
  using link = std::tuple<const hip::runtime*, int, int>;
  std::mutex mutex;
  std::map<link, std::size_t> owners;  ///< how many each has; the last one disables it
};

/// Never destroyed: owners may live longer than static objects.
shared_links& shared() {
  static auto* const here = new shared_links;
  return *here;
}

}  // namespace

void peer_link::make() {
  const scoped_device current(runtime(), device_);
  const std::lock_guard lock(shared().mutex);
  auto& owners = shared().owners[{&runtime(), device_.value, peer_.value}];
  const auto result = runtime().hipDeviceEnablePeerAccess(peer_.value, 0);
  if (result == hip::hipErrorPeerAccessAlreadyEnabled) {
    runtime().forget_last_error();
    if (owners == 0) return;
  } else {
    runtime().check(result, "hipDeviceEnablePeerAccess", [&] {
      return std::pair(identify(),
                       "peer=" + std::to_string(peer_.value) + " with " + text(device_) + " current");
    });
    owners = 0;  // of owners that there were, other code has disabled it
  }
  ++owners;
  fill();
}

void peer_link::release() {
  const auto disable = [&] {
    const std::lock_guard lock(shared().mutex);
    auto& owners = shared().owners.find({&runtime(), device_.value, peer_.value})->second;
    if (owners > 1) {
      --owners;
      return hip::hipSuccess;
    }
    const scoped_device current(runtime(), device_);
    const auto result = runtime().hipDeviceDisablePeerAccess(peer_.value);
    owners = 0;
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
