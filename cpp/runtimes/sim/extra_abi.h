// The types of HIP's C ABI that only the simulator uses, not hipplan itself.
#pragma once

#include "hip/hip_abi.h"

namespace hip_abi {

struct ihipCtx_t;
using hipCtx_t = ihipCtx_t*;
using hipDeviceptr_t = void*;
using hipStreamCallback_t = void (*)(hipStream_t stream, hipError_t status, void* user_data);
using hipHostFn_t = void (*)(void* user_data);

enum hipPointer_attribute : unsigned int {
  HIP_POINTER_ATTRIBUTE_CONTEXT = 1,
  HIP_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
  HIP_POINTER_ATTRIBUTE_DEVICE_POINTER = 3,
  HIP_POINTER_ATTRIBUTE_HOST_POINTER = 4,
  HIP_POINTER_ATTRIBUTE_P2P_TOKENS = 5,
  HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS = 6,
  HIP_POINTER_ATTRIBUTE_BUFFER_ID = 7,
  HIP_POINTER_ATTRIBUTE_IS_MANAGED = 8,
  HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
  HIP_POINTER_ATTRIBUTE_IS_LEGACY_HIP_IPC_CAPABLE = 10,
  HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
  HIP_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
  HIP_POINTER_ATTRIBUTE_MAPPED = 13,
  HIP_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES = 14,
  HIP_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE = 15,
  HIP_POINTER_ATTRIBUTE_ACCESS_FLAGS = 16,
  HIP_POINTER_ATTRIBUTE_MEMPOOL_HANDLE = 17,
};

inline constexpr hipMemAllocationHandleType hipMemHandleTypeFabric{8};  // since 7.14
inline constexpr unsigned int hipEventInterprocess = 4;

/// hipIpcMemHandle_t and hipIpcEventHandle_t, which are passed by value.
struct hipIpcHandle {
  char reserved[64];
};

struct hipDeviceProp_tR0000;  // 792 bytes, the layout of 5.x; written by offset

}  // namespace hip_abi
