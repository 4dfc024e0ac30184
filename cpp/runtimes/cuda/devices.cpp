#include "devices.hpp"

#include <atomic>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace hipcuda {
namespace {

struct device_slot {
  CUdevice handle = 0;
  std::mutex retaining;
  std::atomic<CUcontext> context{nullptr};
};

struct machine {
  const driver_table* calls = nullptr;  ///< null: no device
  std::string problem;
  std::vector<std::unique_ptr<device_slot>> devices;
};

std::string failed_call(const driver_table& calls, const char* call, CUresult result) {
  const char* name = nullptr;
  if (calls.cuGetErrorName(result, &name) != CUDA_SUCCESS || !name) name = "unnamed error";
  return std::string("the NVIDIA driver does not start: ") + call + " gave " + name + " (" +
         std::to_string(static_cast<unsigned>(result)) + ")";
}

/// Fills `out.devices`. Returns an empty text, or a sentence that says why it failed.
std::string find_devices(const driver_table& calls, machine& out) {
  if (const auto result = calls.cuInit(0); result == CUDA_ERROR_NO_DEVICE) {
    return "the NVIDIA driver sees no GPU";
  } else if (result != CUDA_SUCCESS) {
    return failed_call(calls, "cuInit", result);
  }
  int count = 0;
  if (const auto result = calls.cuDeviceGetCount(&count); result != CUDA_SUCCESS) {
    return failed_call(calls, "cuDeviceGetCount", result);
  }
  if (count == 0) return "the NVIDIA driver sees no GPU";
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    auto slot = std::make_unique<device_slot>();
    if (const auto result = calls.cuDeviceGet(&slot->handle, ordinal); result != CUDA_SUCCESS) {
      out.devices.clear();
      return failed_call(calls, "cuDeviceGet", result);
    }
    out.devices.push_back(std::move(slot));
  }
  return {};
}

std::unique_ptr<machine> start() {
  auto out = std::make_unique<machine>();
  const loaded_driver& loaded = load_driver();
  out->problem = loaded.problem.empty() ? find_devices(loaded.calls, *out) : loaded.problem;
  if (out->problem.empty()) out->calls = &loaded.calls;
  return out;
}

machine& this_machine() {
  static machine& only = *start().release();  // never destroyed: code may call at exit
  return only;
}

thread_local int chosen_device = 0;

}  // namespace

const driver_table& driver() {
  const driver_table* calls = this_machine().calls;
  require(calls != nullptr, hipErrorNoDevice);
  return *calls;
}

int device_count() { return static_cast<int>(this_machine().devices.size()); }

const char* no_device_reason() { return this_machine().problem.c_str(); }

bool is_device(int ordinal) { return ordinal >= 0 && ordinal < device_count(); }

CUdevice device_handle(int ordinal, hipError_t otherwise) {
  require(is_device(ordinal), otherwise);
  return this_machine().devices[static_cast<std::size_t>(ordinal)]->handle;
}

CUcontext primary_context(int ordinal) {
  const auto& calls = driver();
  require(is_device(ordinal), hipErrorInvalidDevice);
  device_slot& slot = *this_machine().devices[static_cast<std::size_t>(ordinal)];
  if (CUcontext context = slot.context.load(std::memory_order_acquire)) return context;
  const std::scoped_lock lock(slot.retaining);
  CUcontext context = slot.context.load(std::memory_order_relaxed);
  if (!context) {
    check(calls.cuDevicePrimaryCtxRetain(&context, slot.handle));
    slot.context.store(context, std::memory_order_release);
  }
  return context;
}

int current_device() { return chosen_device; }

void set_current_device(int ordinal) { chosen_device = ordinal; }

int device_with_context() {
  const auto has_one = [](int ordinal) {
    const auto& slot = *this_machine().devices[static_cast<std::size_t>(ordinal)];
    return slot.context.load(std::memory_order_acquire) != nullptr;
  };
  if (!is_device(chosen_device) || has_one(chosen_device)) return chosen_device;
  for (int ordinal = 0; ordinal < device_count(); ++ordinal) {
    if (has_one(ordinal)) return ordinal;
  }
  return chosen_device;
}

context_scope::context_scope(int ordinal) {
  const CUcontext wanted = primary_context(ordinal);
  CUcontext current = nullptr;
  check(driver().cuCtxGetCurrent(&current));
  if (current == wanted) return;
  check(driver().cuCtxPushCurrent_v2(wanted));
  pushed_by_ = &driver();
}

context_scope::~context_scope() {
  if (!pushed_by_) return;
  CUcontext popped = nullptr;
  const auto result = pushed_by_->cuCtxPopCurrent_v2(&popped);
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_DEINITIALIZED) return;
  std::fprintf(stderr, "libhipcuda: the thread's CUDA context could not be restored (CUDA error %u)\n",
               static_cast<unsigned>(result));
}

}  // namespace hipcuda
