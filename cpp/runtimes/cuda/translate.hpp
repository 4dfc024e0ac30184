// HIP's types and numbers to CUDA's and back: everything in which the two ABIs differ.
#pragma once

#include <cstdint>
#include <optional>

#include "cuda_abi.h"
#include "hip/hip_abi.h"

namespace hipcuda {

using namespace cuda_abi;
using namespace hip_abi;

/// Thrown by every call that fails; the exported functions turn it into their return value.
struct failure {
  hipError_t code;
  bool is_new = true;  ///< false: hipGetLastError returns an error that was recorded before
};

[[noreturn]] inline void fail(hipError_t code) { throw failure{code}; }
inline void require(bool holds, hipError_t otherwise = hipErrorInvalidValue) {
  if (!holds) fail(otherwise);
}

/// A result without a HIP counterpart is reported on stderr, once, and becomes hipErrorUnknown.
[[nodiscard]] hipError_t to_hip(CUresult result);
inline void check(CUresult result) {
  if (result != CUDA_SUCCESS) fail(to_hip(result));
}

[[nodiscard]] hipMemoryType to_hip(CUmemorytype type, bool managed);
[[nodiscard]] hipMemAllocationProp to_hip(const CUmemAllocationProp& prop);

/// Throws InvalidValue or NotSupported for properties that CUDA does not have.
[[nodiscard]] CUmemAllocationProp to_cuda(const hipMemAllocationProp& prop);
[[nodiscard]] CUmemLocation to_cuda(const hipMemLocation& location);
[[nodiscard]] const CUmemAccessDesc* to_cuda(const hipMemAccessDesc* descriptions);
[[nodiscard]] CUmem_advise to_cuda(hipMemoryAdvise advice);
[[nodiscard]] CUmem_range_attribute to_cuda(hipMemRangeAttribute attribute);
[[nodiscard]] CUdevice_P2PAttribute to_cuda(hipDeviceP2PAttr attribute);
/// Empty for an attribute that is not one of CUDA's.
[[nodiscard]] std::optional<CUdevice_attribute> to_cuda(hipDeviceAttribute_t attribute);

/// Flags: returns those that CUDA has too; throws for those that HIP refuses.
[[nodiscard]] unsigned int host_malloc_flags(unsigned int hip_flags);
[[nodiscard]] unsigned int host_register_flags(unsigned int hip_flags);

inline CUdeviceptr to_address(const void* ptr) { return reinterpret_cast<CUdeviceptr>(ptr); }
inline void* to_pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }
inline CUstream to_cuda(hipStream_t stream) { return reinterpret_cast<CUstream>(stream); }
inline CUevent to_cuda(hipEvent_t event) { return reinterpret_cast<CUevent>(event); }
inline CUmemGenericAllocationHandle to_cuda(hipMemGenericAllocationHandle_t handle) {
  return reinterpret_cast<CUmemGenericAllocationHandle>(handle);
}
inline hipMemGenericAllocationHandle_t to_hip(CUmemGenericAllocationHandle handle) {
  return reinterpret_cast<hipMemGenericAllocationHandle_t>(handle);
}

}  // namespace hipcuda
