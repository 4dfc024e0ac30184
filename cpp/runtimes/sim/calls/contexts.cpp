// Primary contexts. On AMD a context stands for its device; the handle contains only the ordinal.
#include "calls/support.hpp"

namespace hipsim::calls {
hipError_t hipDevicePrimaryCtxGetState(hipDevice_t device, unsigned int* flags, int* active) {
  if (!reading()->is_device(device)) return hipErrorInvalidDevice;
  if (flags) *flags = 0;
  if (active) *active = reading()->devices[static_cast<std::size_t>(device)].used;
  return hipSuccess;
}

hipError_t hipDevicePrimaryCtxRetain(hipCtx_t* context, hipDevice_t device) {
  if (!context) return hipErrorInvalidValue;
  if (!reading()->is_device(device)) return hipErrorInvalidDevice;
  *context = context_of(device);
  return hipSuccess;
}

hipError_t hipDevicePrimaryCtxRelease(hipDevice_t device) {
  return reading()->is_device(device) ? hipSuccess : hipErrorInvalidDevice;
}

hipError_t hipDevicePrimaryCtxReset(hipDevice_t device) {
  return reading()->is_device(device) ? hipSuccess : hipErrorInvalidDevice;
}

hipError_t hipDevicePrimaryCtxSetFlags(hipDevice_t device, unsigned int) {
  return reading()->is_device(device) ? hipErrorNotSupported : hipErrorInvalidDevice;
}

hipError_t hipCtxGetCurrent(hipCtx_t* context) {
  if (!context) return hipErrorInvalidValue;
  *context = context_of(current_device());
  return hipSuccess;
}

hipError_t hipCtxSetCurrent(hipCtx_t context) {
  if (!context) return hipSuccess;
  const auto device = static_cast<std::int64_t>(id_of(context) - context_base);
  if (device < 0 || device >= reading()->device_count()) return hipErrorInvalidContext;
  process::thread().device = static_cast<int>(device);
  return hipSuccess;
}

hipError_t hipCtxGetDevice(hipDevice_t* device) {
  if (!device) return hipErrorInvalidValue;
  *device = current_device();
  return hipSuccess;
}

hipError_t hipCtxSynchronize() { return hipErrorNotSupported; }  // programs call hipDeviceSynchronize instead

// Success and no effect, in every release.
hipError_t hipCtxEnablePeerAccess(hipCtx_t, unsigned int) { return hipSuccess; }
hipError_t hipCtxDisablePeerAccess(hipCtx_t) { return hipSuccess; }

}  // namespace hipsim::calls
