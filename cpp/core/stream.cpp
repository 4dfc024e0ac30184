#include "stream.hpp"

#include "scoped_device.hpp"

namespace hipplan {

void stream::make(device_id device) {
  const scoped_device current(runtime(), device);
  const auto result = runtime().hipStreamCreateWithFlags(&stream_, hip::hipStreamNonBlocking);
  runtime().check(result, "hipStreamCreateWithFlags", [&] { return std::pair(identify(), text(device)); });
  fill();
}

void stream::release() {
  check_release(release_once([&] { return runtime().hipStreamDestroy(stream_); }), "hipStreamDestroy",
                [&] { return std::pair(identify(), "stream=" + hexadecimal(stream_)); });
}

std::string stream::identify() const { return "stream '" + name() + "'"; }

}  // namespace hipplan
