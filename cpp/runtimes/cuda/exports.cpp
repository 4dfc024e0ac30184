// What the library exports: every call of hip_calls.def, each behind one guard, and hipcuda_message.
#include <cstdio>
#include <exception>
#include <new>
#include <string_view>

#include "calls.hpp"

namespace {

using namespace hipcuda;

/// What a call needs before it checks its arguments; HIP returns NoDevice before any other error.
enum class needs { nothing, device, any_context, context };

constexpr needs needs_of(std::string_view call) {
  for (const auto each : {"hipGetDeviceCount", "hipSetDevice", "hipRuntimeGetVersion", "hipDriverGetVersion",
                          "hipGetLastError"}) {
    if (call == each) return needs::nothing;
  }
  for (const auto each :
       {"hipInit", "hipGetDevice", "hipDeviceGetName", "hipDeviceTotalMem", "hipDeviceGetPCIBusId",
        "hipDeviceGetAttribute", "hipDeviceGetUuid", "hipGetDevicePropertiesR0600", "hipDeviceCanAccessPeer",
        "hipDeviceGetP2PAttribute", "hipExtGetLinkTypeAndHopCount"}) {
    if (call == each) return needs::device;  // a query of a device must not create a context on it
  }
  for (const auto each :
       {"hipMemAddressReserve", "hipMemAddressFree", "hipMemCreate", "hipMemRelease", "hipMemMap",
        "hipMemUnmap", "hipMemSetAccess", "hipMemGetAccess", "hipMemGetAllocationGranularity",
        "hipMemGetAllocationPropertiesFromHandle", "hipMemRetainAllocationHandle",
        "hipMemExportToShareableHandle", "hipMemImportFromShareableHandle"}) {
    if (call == each) return needs::device;  // virtual memory needs no context, which would cost 0.5 GB
  }
  for (const auto each :
       {"hipPointerGetAttributes", "hipMemGetAddressRange", "hipMemGetHandleForAddressRange",
        "hipMemRangeGetAttribute", "hipMemRangeGetAttributes", "hipMemAdvise", "hipFree", "hipHostFree",
        "hipHostUnregister", "hipStreamDestroy", "hipEventQuery", "hipEventDestroy"}) {
    if (call == each) return needs::any_context;  // addresses and streams are valid in every context
  }
  return needs::context;
}

template <needs Needs, class Call>
void run(Call call) {
  if constexpr (Needs == needs::context) {
    const context_scope scope(current_device());
    call();
  } else if constexpr (Needs == needs::any_context) {
    const context_scope scope(device_with_context());
    call();
  } else {
    if constexpr (Needs == needs::device) driver();
    call();
  }
}

/// Runs a call and turns every exception into a hipError_t.
template <needs Needs, class Call>
hipError_t guarded(const char* name, Call call) noexcept {
  hipError_t code = hipErrorUnknown;
  try {
    run<Needs>(call);
    return hipSuccess;
  } catch (const failure& failed) {
    if (!failed.is_new) return failed.code;
    code = failed.code;
  } catch (const std::bad_alloc&) {
    code = hipErrorOutOfMemory;
  } catch (const std::exception& unexpected) {
    std::fprintf(stderr, "libhipcuda: %s: %s\n", name, unexpected.what());
  } catch (...) {
    std::fprintf(stderr, "libhipcuda: %s: unknown exception\n", name);
  }
  record_error(code);
  return code;
}

}  // namespace

#define HIPCUDA_EXPORT extern "C" __attribute__((visibility("default")))

#define HIP_CALL(name, parameters, arguments)                                 \
  HIPCUDA_EXPORT hipError_t name parameters {                                 \
    return guarded<needs_of(#name)>(#name, [&] { hipcuda::name arguments; }); \
  }
#include "hip/hip_calls.def"

/// Why this runtime has no device, in one sentence; empty while it has one. Never null, valid for ever.
HIPCUDA_EXPORT const char* hipcuda_message() {
  try {
    return no_device_reason();
  } catch (...) {
    return "libhipcuda could not start: out of memory";
  }
}
