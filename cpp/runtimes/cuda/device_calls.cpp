// The runtime and its devices.
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <limits>
#include <utility>

#include "calls.hpp"

namespace hipcuda {
namespace {

/// The HIP version whose rules CUDA follows: hipMemMap reports its failures, a retained handle must be
/// released, the recommended granularity is 2 MiB, import takes the descriptor itself. HIP has all of them
/// from 7.14 on; ROCm 10.0 has 7.15.
constexpr int hip_version = 7 * 10'000'000 + 15 * 100'000;

thread_local hipError_t last_error = hipSuccess;

int attribute_of(CUdevice device, CUdevice_attribute attribute) {
  int value = 0;
  check(driver().cuDeviceGetAttribute(&value, attribute, device));
  return value;
}

std::size_t total_memory(CUdevice device) {
  std::size_t bytes = 0;
  check(driver().cuDeviceTotalMem_v2(&bytes, device));
  return bytes;
}

}  // namespace

void record_error(hipError_t code) {
  if (code != hipSuccess && code != hipErrorNotReady) last_error = code;
}

void hipInit(unsigned int flags) { require(flags == 0); }

void hipRuntimeGetVersion(int* version) {
  require(version);
  *version = hip_version;
}

void hipDriverGetVersion(int* version) {
  require(version);
  *version = load_driver().version;
}

void hipGetLastError() {
  const hipError_t code = std::exchange(last_error, hipSuccess);
  if (code != hipSuccess) throw failure{code, /*is_new=*/false};
}

void hipGetDeviceCount(int* count) {
  require(count);
  *count = device_count();
  require(*count > 0, hipErrorNoDevice);
}

void hipSetDevice(int device) {
  require(device_count() > 0, hipErrorNoDevice);
  require(is_device(device), hipErrorInvalidDevice);
  set_current_device(device);
}

void hipGetDevice(int* device) {
  require(device);
  *device = current_device();
}

void hipDeviceGetName(char* name, int length, hipDevice_t device) {
  const CUdevice handle = device_handle(device);
  require(name && length > 0);
  check(driver().cuDeviceGetName(name, length, handle));
}

void hipDeviceTotalMem(std::size_t* bytes, hipDevice_t device) {
  const CUdevice handle = device_handle(device);
  require(bytes);
  *bytes = total_memory(handle);
}

void hipDeviceGetPCIBusId(char* pciBusId, int length, int device) {
  const CUdevice handle = device_handle(device);
  require(pciBusId && length > 0);
  check(driver().cuDeviceGetPCIBusId(pciBusId, length, handle));
  for (char* c = pciBusId; *c; ++c) *c = static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
}

void hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int device) {
  require(value);
  const CUdevice handle = device_handle(device);
  if (attribute == hipDeviceAttributeTotalGlobalMem) {
    constexpr std::size_t most = std::numeric_limits<int>::max();  // HIP caps it there too
    *value = static_cast<int>(std::min(total_memory(handle), most));
    return;
  }
  if (attribute == hipDeviceAttributeIsLargeBar) {
    *value = 0;  // cuMemAlloc's addresses are never the CPU's, however large the BAR
    return;
  }
  const auto known = to_cuda(attribute);
  if (!known) fail(hipErrorInvalidValue);
  *value = attribute_of(handle, *known);
}

void hipDeviceSynchronize() { check(driver().cuCtxSynchronize()); }

void hipMemGetInfo(std::size_t* free, std::size_t* total) {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  check(driver().cuMemGetInfo_v2(&free_bytes, &total_bytes));
  if (free) *free = free_bytes;
  if (total) *total = total_bytes;
}

void hipDeviceGetUuid(hipUUID* uuid, hipDevice_t device) {
  require(uuid);
  CUuuid raw;
  check(driver().cuDeviceGetUuid_v2(&raw, device_handle(device)));
  static_assert(sizeof(raw) == sizeof(*uuid));
  std::memcpy(uuid, &raw, sizeof(raw));
}

void hipGetDevicePropertiesR0600(hipDeviceProp_tR0600* prop, int device) {
  require(prop);
  const CUdevice handle = device_handle(device);
  *prop = {};
  check(driver().cuDeviceGetName(prop->name, sizeof(prop->name), handle));
  hipDeviceGetUuid(&prop->uuid, device);
  prop->totalGlobalMem = total_memory(handle);
  const int major = attribute_of(handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  const int minor = attribute_of(handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  std::snprintf(prop->gcnArchName, sizeof(prop->gcnArchName), "sm_%d%d", major, minor);
}

}  // namespace hipcuda
