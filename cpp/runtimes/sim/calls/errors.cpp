// hipGetLastError and its relatives, error names, versions, hipInit.
#include <dlfcn.h>

#include <utility>

#include "calls/support.hpp"

namespace hipsim::calls {
namespace {

struct named_error {
  std::uint32_t code;
  const char* name;
  const char* sentence;
};
// Errors that only newer releases have.
constexpr named_error since_7[] = {
    {911, "hipErrorInvalidChannelDescriptor", "invalid resource description of texture passed to the api"},
    {912, "hipErrorInvalidTexture", "invalid texture object passed to the api"},
};

const named_error* newer_error(hipError_t error) {
  for (const auto& error_entry : since_7) {
    if (error_entry.code == error && process::instance().keeps_only_errors()) return &error_entry;
  }
  return nullptr;
}

const char* name_of(hipError_t error) {
  if (const auto* newer = newer_error(error)) return newer->name;
  switch (error) {
#define HIP_ABI_ERROR(name, value) \
  case name:                       \
    return #name;
    HIP_ABI_ERRORS(HIP_ABI_ERROR)
#undef HIP_ABI_ERROR
  }
  return nullptr;
}

// The texts of ROCm's own library.
const char* sentence_of(hipError_t error) {
  if (const auto* newer = newer_error(error)) return newer->sentence;
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
    case hipErrorProfilerDisabled:
      return "profiler disabled while using external profiling tool";
    case hipErrorProfilerNotInitialized:
      return "profiler is not initialized";
    case hipErrorProfilerAlreadyStarted:
      return "profiler already started";
    case hipErrorProfilerAlreadyStopped:
      return "profiler already stopped";
    case hipErrorInvalidConfiguration:
      return "invalid configuration argument";
    case hipErrorInvalidPitchValue:
      return "invalid pitch argument";
    case hipErrorInvalidSymbol:
      return "invalid device symbol";
    case hipErrorInvalidDevicePointer:
      return "invalid device pointer";
    case hipErrorInvalidMemcpyDirection:
      return "invalid copy direction for memcpy";
    case hipErrorInsufficientDriver:
      return "driver version is insufficient for runtime version";
    case hipErrorMissingConfiguration:
      return "__global__ function call is not configured";
    case hipErrorPriorLaunchFailure:
      return "unspecified launch failure in prior launch";
    case hipErrorInvalidDeviceFunction:
      return "invalid device function";
    case hipErrorNoDevice:
      return "no ROCm-capable device is detected";
    case hipErrorInvalidDevice:
      return "invalid device ordinal";
    case hipErrorInvalidImage:
      return "device kernel image is invalid";
    case hipErrorInvalidContext:
      return "invalid device context";
    case hipErrorContextAlreadyCurrent:
      return "context is already current context";
    case hipErrorMapFailed:
      return "mapping of buffer object failed";
    case hipErrorUnmapFailed:
      return "unmapping of buffer object failed";
    case hipErrorArrayIsMapped:
      return "array is mapped";
    case hipErrorAlreadyMapped:
      return "resource already mapped";
    case hipErrorNoBinaryForGpu:
      return "no kernel image is available for execution on the device";
    case hipErrorAlreadyAcquired:
      return "resource already acquired";
    case hipErrorNotMapped:
      return "resource not mapped";
    case hipErrorNotMappedAsArray:
      return "resource not mapped as array";
    case hipErrorNotMappedAsPointer:
      return "resource not mapped as pointer";
    case hipErrorECCNotCorrectable:
      return "uncorrectable ECC error encountered";
    case hipErrorUnsupportedLimit:
      return "limit is not supported on this architecture";
    case hipErrorContextAlreadyInUse:
      return "exclusive-thread device already in use by a different thread";
    case hipErrorPeerAccessUnsupported:
      return "peer access is not supported between these two devices";
    case hipErrorInvalidKernelFile:
      return "invalid kernel file";
    case hipErrorInvalidGraphicsContext:
      return "invalid OpenGL or DirectX context";
    case hipErrorInvalidSource:
      return "device kernel image is invalid";
    case hipErrorFileNotFound:
      return "file not found";
    case hipErrorSharedObjectSymbolNotFound:
      return "shared object symbol not found";
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
    case hipErrorLaunchOutOfResources:
      return "too many resources requested for launch";
    case hipErrorLaunchTimeOut:
      return "the launch timed out and was terminated";
    case hipErrorPeerAccessAlreadyEnabled:
      return "peer access is already enabled";
    case hipErrorPeerAccessNotEnabled:
      return "peer access has not been enabled";
    case hipErrorSetOnActiveProcess:
      return "cannot set while device is active in this process";
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
    case hipErrorCooperativeLaunchTooLarge:
      return "too many blocks in cooperative launch";
    case hipErrorNotSupported:
      return "operation not supported";
    case hipErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case hipErrorStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
    case hipErrorStreamCaptureMerge:
      return "operation would result in a merge of separate capture sequences";
    case hipErrorStreamCaptureUnmatched:
      return "capture was not ended in the same stream as it began";
    case hipErrorStreamCaptureUnjoined:
      return "capturing stream has unjoined work";
    case hipErrorStreamCaptureIsolation:
      return "dependency created on uncaptured work in another stream";
    case hipErrorStreamCaptureImplicit:
      return "operation would make the legacy stream depend on a capturing blocking stream";
    case hipErrorCapturedEvent:
      return "operation not permitted on an event last recorded in a capturing stream";
    case hipErrorStreamCaptureWrongThread:
      return "attempt to terminate a thread-local capture sequence from another thread";
    case hipErrorGraphExecUpdateFailure:
      return "the graph update was not performed because it included changes which violated constraints "
             "specific to instantiated graph update";
    case hipErrorRuntimeMemory:
      return "runtime memory call returned error";
    case hipErrorRuntimeOther:
      return "runtime call other than memory returned error";
    case hipErrorTbd:
    case hipErrorUnknown:
      break;
  }
  return "unknown error";
}

// An export of this library, looked up in its own symbol table.
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

}  // namespace

hipError_t hipInit(unsigned int flags) { return flags == 0 ? hipSuccess : hipErrorInvalidValue; }

hipError_t hipRuntimeGetVersion(int* version) {
  if (!version) return hipErrorInvalidValue;
  *version = reading()->profile.version.number();
  return hipSuccess;
}

hipError_t hipDriverGetVersion(int* version) { return hipRuntimeGetVersion(version); }

hipError_t hipGetLastError() {
  return static_cast<hipError_t>(std::exchange(process::thread().last_error, hipSuccess));
}

// It also sets the last call's result, which hipExtGetLastError returns.
hipError_t hipPeekAtLastError() {
  auto& thread = process::thread();
  thread.last_result = thread.last_error;
  return static_cast<hipError_t>(thread.last_result);
}

// Up to 6.3 another name for hipGetLastError.
hipError_t hipExtGetLastError() {
  if (reading()->rules.one_last_error) return hipGetLastError();
  return static_cast<hipError_t>(std::exchange(process::thread().last_result, hipSuccess));
}

hipError_t hipDrvGetErrorName(hipError_t error, const char** text) {
  if (!text) return hipErrorInvalidValue;
  const char* const name = name_of(error);
  *text = name ? name : "hipErrorUnknown";
  return name ? hipSuccess : hipErrorInvalidValue;
}

hipError_t hipDrvGetErrorString(hipError_t error, const char** text) {
  if (!text) return hipErrorInvalidValue;
  *text = sentence_of(error);
  return name_of(error) ? hipSuccess : hipErrorInvalidValue;
}

hipError_t hipGetProcAddress(const char* symbol, void** pfn, int, std::uint64_t, unsigned int* symbolStatus) {
  if (!symbol || !pfn || *symbol == '\0') return hipErrorInvalidValue;
  std::string name = symbol;
  // As in the headers since 6.0, this name means the new layout of the struct.
  if (name == "hipGetDeviceProperties") name = "hipGetDevicePropertiesR0600";
  *pfn = exported(name);
  if (symbolStatus) *symbolStatus = *pfn ? 0 : 1;
  return *pfn ? hipSuccess : hipErrorInvalidValue;
}

}  // namespace hipsim::calls

// These two return no hipError_t and set no last error, so they are not in the lists.
extern "C" __attribute__((visibility("default"))) const char* hipGetErrorName(hip_abi::hipError_t error) {
  const char* name = hipsim::calls::name_of(error);
  return name ? name : "hipErrorUnknown";
}

extern "C" __attribute__((visibility("default"))) const char* hipGetErrorString(hip_abi::hipError_t error) {
  return hipsim::calls::sentence_of(error);
}
