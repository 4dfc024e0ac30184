// hipGetLastError and its relatives, error names, versions, hipInit.
#include <dlfcn.h>

#include "calls/support.hpp"

namespace hipsim::calls {
namespace {

const char* name_of(hipError_t error) {
  switch (error) {
#define HIP_ABI_ERROR(name, value) \
  case name:                       \
    return #name;
    HIP_ABI_ERRORS(HIP_ABI_ERROR)
#undef HIP_ABI_ERROR
  }
  return nullptr;
}

// In the words of ROCm's own library.
const char* sentence_of(hipError_t error) {
  switch (error) {
    case hipSuccess:
      return "no error";
    case hipErrorInvalidValue:
      return "invalid argument";
    case hipErrorOutOfMemory:
      return "out of memory";
    case hipErrorNotInitialized:
      return "initialization error";
    case hipErrorDeinitialized:
      return "driver shutting down";
    case hipErrorInvalidMemcpyDirection:
      return "invalid copy direction for memcpy";
    case hipErrorInsufficientDriver:
      return "driver version is insufficient for runtime version";
    case hipErrorNoDevice:
      return "no ROCm-capable device is detected";
    case hipErrorInvalidDevice:
      return "invalid device ordinal";
    case hipErrorInvalidContext:
      return "invalid device context";
    case hipErrorMapFailed:
      return "mapping of buffer object failed";
    case hipErrorUnmapFailed:
      return "unmapping of buffer object failed";
    case hipErrorAlreadyMapped:
      return "resource already mapped";
    case hipErrorNotMapped:
      return "resource not mapped";
    case hipErrorECCNotCorrectable:
      return "uncorrectable ECC error encountered";
    case hipErrorUnsupportedLimit:
      return "limit is not supported on this architecture";
    case hipErrorContextAlreadyInUse:
      return "exclusive-thread device already in use by a different thread";
    case hipErrorPeerAccessUnsupported:
      return "peer access is not supported between these two devices";
    case hipErrorSharedObjectInitFailed:
      return "shared object initialization failed";
    case hipErrorOperatingSystem:
      return "OS call failed or operation not supported on this OS";
    case hipErrorInvalidHandle:
      return "invalid resource handle";
    case hipErrorIllegalState:
      return "the operation cannot be performed in the present state";
    case hipErrorNotFound:
      return "named symbol not found";
    case hipErrorNotReady:
      return "device not ready";
    case hipErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case hipErrorLaunchTimeOut:
      return "the launch timed out and was terminated";
    case hipErrorPeerAccessAlreadyEnabled:
      return "peer access is already enabled";
    case hipErrorPeerAccessNotEnabled:
      return "peer access has not been enabled";
    case hipErrorContextIsDestroyed:
      return "context is destroyed";
    case hipErrorAssert:
      return "device-side assert triggered";
    case hipErrorHostMemoryAlreadyRegistered:
      return "part or all of the requested memory range is already mapped";
    case hipErrorHostMemoryNotRegistered:
      return "pointer does not correspond to a registered memory region";
    case hipErrorLaunchFailure:
      return "unspecified launch failure";
    case hipErrorNotSupported:
      return "operation not supported";
    case hipErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case hipErrorUnknown:
      break;
  }
  return "unknown error";
}

// An export of this library. Its own table of symbols is the list: it lacks nothing and names nothing twice.
void* exported(const std::string& name) {
  if (!name.starts_with("hip") || name.starts_with("hipsim")) return nullptr;
  Dl_info here{};
  if (dladdr(reinterpret_cast<void*>(&exported), &here) == 0) return nullptr;
  void* const library = dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (!library) return nullptr;
  void* const found = dlsym(library, name.c_str());
  dlclose(library);  // the count that dlopen added
  return found;
}

hipError_t take_last_error() {
  auto& thread = process::thread();
  const auto code = thread.last_error;
  thread.last_error = hipSuccess;
  return static_cast<hipError_t>(code);
}

}  // namespace

hipError_t hipInit(unsigned int flags) { return flags == 0 ? hipSuccess : hipErrorInvalidValue; }

hipError_t hipRuntimeGetVersion(int* version) {
  if (!version) return hipErrorInvalidValue;
  *version = reading()->profile.version.number();
  return hipSuccess;
}

hipError_t hipDriverGetVersion(int* version) { return hipRuntimeGetVersion(version); }

hipError_t hipGetLastError() { return take_last_error(); }

hipError_t hipPeekAtLastError() { return static_cast<hipError_t>(process::thread().last_error); }

hipError_t hipExtGetLastError() {
  if (!reading()->rules.keeps_only_errors) return take_last_error();
  return static_cast<hipError_t>(process::thread().last_result);
}

hipError_t hipDrvGetErrorName(hipError_t error, const char** text) {
  if (!text) return hipErrorInvalidValue;
  *text = name_of(error);
  return *text ? hipSuccess : hipErrorInvalidValue;
}

hipError_t hipDrvGetErrorString(hipError_t error, const char** text) {
  if (!text) return hipErrorInvalidValue;
  *text = sentence_of(error);
  return name_of(error) ? hipSuccess : hipErrorInvalidValue;
}

hipError_t hipGetProcAddress(const char* symbol, void** pfn, int, std::uint64_t, unsigned int* symbolStatus) {
  if (!symbol || !pfn || *symbol == '\0') return hipErrorInvalidValue;
  std::string name = symbol;
  // As in the headers since 6.0, the plain name means the present layout of the struct.
  if (name == "hipGetDeviceProperties") name = "hipGetDevicePropertiesR0600";
  *pfn = exported(name);
  if (symbolStatus) *symbolStatus = *pfn ? 0 : 1;
  return *pfn ? hipSuccess : hipErrorInvalidValue;
}

}  // namespace hipsim::calls

// No hipError_t, no last error: these two stand outside the lists.
extern "C" __attribute__((visibility("default"))) const char* hipGetErrorName(hip_abi::hipError_t error) {
  const char* name = hipsim::calls::name_of(error);
  return name ? name : "hipErrorUnknown";
}

extern "C" __attribute__((visibility("default"))) const char* hipGetErrorString(hip_abi::hipError_t error) {
  return hipsim::calls::sentence_of(error);
}
