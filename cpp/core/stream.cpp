#include "stream.hpp"

#include "scoped_device.hpp"

namespace hipplan {

stream stream::create(hip::runtime& runtime, std::string name, device_id device) {
  const scoped_device current(runtime, device);
  hip::hipStream_t native{};
  const auto result = runtime.hipStreamCreateWithFlags(&native, hip::hipStreamNonBlocking);
  runtime.check(result, "hipStreamCreateWithFlags",
                [&] { return std::pair("stream '" + name + "'", text(device)); });
  return {runtime, std::move(name), native};
}

void stream::release() {
  answered(once([&] { return runtime().hipStreamDestroy(stream_); }), "hipStreamDestroy",
           [&] { return std::pair(identify(), "stream=" + hexadecimal(stream_)); });
}

std::string stream::identify() const { return "stream '" + name() + "'"; }

}  // namespace hipplan
