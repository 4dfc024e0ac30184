// hipGetLastError and its relatives, error names, versions, hipInit.
#include "calls/support.hpp"

namespace hipsim {
void* exported(std::string_view wanted);  // exports.cpp
}

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
  return hipDrvGetErrorName(error, text);
}

hipError_t hipGetProcAddress(const char* symbol, void** pfn, int, std::uint64_t, unsigned int* symbolStatus) {
  if (!symbol || !pfn || *symbol == '\0') return hipErrorInvalidValue;
  std::string_view name = symbol;
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
  return hipGetErrorName(error);
}
