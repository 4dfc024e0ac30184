#include "scoped_device.hpp"

#include "leak_log.hpp"

namespace hipplan {
namespace {

thread_local const scoped_device* innermost = nullptr;

}  // namespace

scoped_device::scoped_device(hip::runtime& runtime, device_id device)
    : runtime_(runtime), device_(device), outer_(innermost) {
  if (!outer_ || &outer_->runtime_ != &runtime || outer_->device_ != device) make_current();
  innermost = this;
}

void scoped_device::make_current() {
  runtime_.check(runtime_.hipGetDevice(&previous_), "hipGetDevice",
                 [] { return std::pair<std::string, std::string>("the calling thread", ""); });
  if (previous_ == device_.value) return;
  runtime_.check(runtime_.hipSetDevice(device_.value), "hipSetDevice", text(device_));
  changed_ = true;
}

scoped_device::~scoped_device() {
  innermost = outer_;
  if (!changed_) return;
  if (runtime_.hipSetDevice(previous_) == hip::hipSuccess) return;
  if (const auto result = runtime_.hipSetDevice(previous_); result != hip::hipSuccess) {
    report_leak("the thread's current device could not be set back to " + std::to_string(previous_) + ": " +
                hip::error_name(result));
  }
}

}  // namespace hipplan
