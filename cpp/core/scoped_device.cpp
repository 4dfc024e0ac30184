#include "scoped_device.hpp"

#include "leak_log.hpp"

namespace hipplan {

scoped_device::scoped_device(hip::runtime& runtime, device_id device) : runtime_(runtime) {
  runtime_.check(runtime_.hipGetDevice(&previous_), "hipGetDevice",
                 [] { return std::pair<std::string, std::string>("the calling thread", ""); });
  if (previous_ == device.value) return;
  runtime_.check(runtime_.hipSetDevice(device.value), "hipSetDevice", text(device));
  changed_ = true;
}

scoped_device::~scoped_device() {
  if (!changed_) return;
  if (runtime_.hipSetDevice(previous_) == hip::hipSuccess) return;
  if (const auto result = runtime_.hipSetDevice(previous_); result != hip::hipSuccess) {
    report_leak("the thread's current device could not be set back to " + std::to_string(previous_) + ": " +
                hip::error_name(result));
  }
}

}  // namespace hipplan
