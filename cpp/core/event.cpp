#include "event.hpp"

#include "scoped_device.hpp"

namespace hipplan {

void event::make(device_id device) {
  const scoped_device current(runtime(), device);
  const auto result = runtime().hipEventCreateWithFlags(&event_, hip::hipEventDisableTiming);
  runtime().check(result, "hipEventCreateWithFlags", [&] { return std::pair(identify(), text(device)); });
  fill();
}

void event::release() {
  check_release(release_once([&] { return runtime().hipEventDestroy(event_); }), "hipEventDestroy",
                [&] { return std::pair(identify(), "event=" + hexadecimal(event_)); });
}

std::string event::identify() const { return "event of '" + name() + "'"; }

}  // namespace hipplan
