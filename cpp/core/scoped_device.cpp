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
  auto result = runtime_.hipSetDevice(previous_);
  if (result == hip::hipSuccess) return;
  runtime_.forget_last_error();
  result = runtime_.hipSetDevice(previous_);
  if (result == hip::hipSuccess) return;
  runtime_.forget_last_error();
  report_leak([&] {
    return "the thread's current device could not be set back to " + std::to_string(previous_) + ": " +
           hip::error_name(result);
  });
}

}  // namespace hipplan
