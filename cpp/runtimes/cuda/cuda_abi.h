// The part of NVIDIA's driver API (cuda.h) that libhipcuda uses, declared here so that it builds without
// a CUDA toolkit. Where a cuda.h is found, cuda_abi_check.cpp compares every line here with it.
// Functions: driver_calls.def.
#pragma once

#include <cstddef>

namespace cuda_abi {

// The results that translate.cpp translates to HIP's errors. X(name, value).
#define CUDA_ABI_RESULTS(X)                         \
  X(CUDA_SUCCESS, 0)                                \
  X(CUDA_ERROR_INVALID_VALUE, 1)                    \
  X(CUDA_ERROR_OUT_OF_MEMORY, 2)                    \
  X(CUDA_ERROR_NOT_INITIALIZED, 3)                  \
  X(CUDA_ERROR_DEINITIALIZED, 4)                    \
  X(CUDA_ERROR_STUB_LIBRARY, 34)                    \
  X(CUDA_ERROR_DEVICE_UNAVAILABLE, 46)              \
  X(CUDA_ERROR_NO_DEVICE, 100)                      \
  X(CUDA_ERROR_INVALID_DEVICE, 101)                 \
  X(CUDA_ERROR_INVALID_CONTEXT, 201)                \
  X(CUDA_ERROR_MAP_FAILED, 205)                     \
  X(CUDA_ERROR_UNMAP_FAILED, 206)                   \
  X(CUDA_ERROR_ALREADY_MAPPED, 208)                 \
  X(CUDA_ERROR_NOT_MAPPED, 211)                     \
  X(CUDA_ERROR_ECC_UNCORRECTABLE, 214)              \
  X(CUDA_ERROR_UNSUPPORTED_LIMIT, 215)              \
  X(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, 217)        \
  X(CUDA_ERROR_NVLINK_UNCORRECTABLE, 220)           \
  X(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, 303)      \
  X(CUDA_ERROR_OPERATING_SYSTEM, 304)               \
  X(CUDA_ERROR_INVALID_HANDLE, 400)                 \
  X(CUDA_ERROR_ILLEGAL_STATE, 401)                  \
  X(CUDA_ERROR_NOT_FOUND, 500)                      \
  X(CUDA_ERROR_NOT_READY, 600)                      \
  X(CUDA_ERROR_ILLEGAL_ADDRESS, 700)                \
  X(CUDA_ERROR_LAUNCH_TIMEOUT, 702)                 \
  X(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704)    \
  X(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, 705)        \
  X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709)           \
  X(CUDA_ERROR_ASSERT, 710)                         \
  X(CUDA_ERROR_TOO_MANY_PEERS, 711)                 \
  X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712) \
  X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, 713)     \
  X(CUDA_ERROR_HARDWARE_STACK_ERROR, 714)           \
  X(CUDA_ERROR_ILLEGAL_INSTRUCTION, 715)            \
  X(CUDA_ERROR_MISALIGNED_ADDRESS, 716)             \
  X(CUDA_ERROR_INVALID_ADDRESS_SPACE, 717)          \
  X(CUDA_ERROR_INVALID_PC, 718)                     \
  X(CUDA_ERROR_LAUNCH_FAILED, 719)                  \
  X(CUDA_ERROR_NOT_SUPPORTED, 801)                  \
  X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900)     \
  X(CUDA_ERROR_UNKNOWN, 999)

#define CUDA_ABI_DEVICE_ATTRIBUTES(X)                                      \
  X(CU_DEVICE_ATTRIBUTE_WARP_SIZE, 10)                                     \
  X(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                          \
  X(CU_DEVICE_ATTRIBUTE_INTEGRATED, 18)                                    \
  X(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 19)                           \
  X(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 33)                                    \
  X(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 34)                                 \
  X(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 41)                            \
  X(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 50)                                 \
  X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                      \
  X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                      \
  X(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 83)                                \
  X(CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED, 86)                  \
  X(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 88)                        \
  X(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 89)                     \
  X(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 91)       \
  X(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 99)                       \
  X(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES, 100) \
  X(CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST, 101)          \
  X(CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED, 102)         \
  X(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 110)      \
  X(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 115)                       \
  X(CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, 119)               \
  X(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 134)

#define CUDA_ABI_P2P_ATTRIBUTES(X)                      \
  X(CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, 1)        \
  X(CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 2)        \
  X(CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, 3) \
  X(CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED, 4)

#define CUDA_ABI_POINTER_ATTRIBUTES(X)      \
  X(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2)    \
  X(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, 3) \
  X(CU_POINTER_ATTRIBUTE_HOST_POINTER, 4)   \
  X(CU_POINTER_ATTRIBUTE_IS_MANAGED, 8)     \
  X(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9) \
  X(CU_POINTER_ATTRIBUTE_MAPPED, 13)        \
  X(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, 18)  \
  X(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, 19)

#define CUDA_ABI_MEMORY_TYPES(X) \
  X(CU_MEMORYTYPE_HOST, 1)       \
  X(CU_MEMORYTYPE_DEVICE, 2)     \
  X(CU_MEMORYTYPE_ARRAY, 3)      \
  X(CU_MEMORYTYPE_UNIFIED, 4)

#define CUDA_ABI_ADVICE(X)                     \
  X(CU_MEM_ADVISE_SET_READ_MOSTLY, 1)          \
  X(CU_MEM_ADVISE_UNSET_READ_MOSTLY, 2)        \
  X(CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 3)   \
  X(CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, 4) \
  X(CU_MEM_ADVISE_SET_ACCESSED_BY, 5)          \
  X(CU_MEM_ADVISE_UNSET_ACCESSED_BY, 6)

#define CUDA_ABI_RANGE_ATTRIBUTES(X)              \
  X(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 1)        \
  X(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, 2) \
  X(CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, 3)        \
  X(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, 4)

#define CUDA_ABI_LOCATION_TYPES(X)     \
  X(CU_MEM_LOCATION_TYPE_INVALID, 0)   \
  X(CU_MEM_LOCATION_TYPE_DEVICE, 1)    \
  X(CU_MEM_LOCATION_TYPE_HOST, 2)      \
  X(CU_MEM_LOCATION_TYPE_HOST_NUMA, 3) \
  X(CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 4)

#define CUDA_ABI_ALLOCATION_TYPES(X)   \
  X(CU_MEM_ALLOCATION_TYPE_INVALID, 0) \
  X(CU_MEM_ALLOCATION_TYPE_PINNED, 1)

#define CUDA_ABI_HANDLE_TYPES(X)                 \
  X(CU_MEM_HANDLE_TYPE_NONE, 0)                  \
  X(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1) \
  X(CU_MEM_HANDLE_TYPE_WIN32, 2)                 \
  X(CU_MEM_HANDLE_TYPE_WIN32_KMT, 4)

#define CUDA_ABI_ACCESS_FLAGS(X)      \
  X(CU_MEM_ACCESS_FLAGS_PROT_NONE, 0) \
  X(CU_MEM_ACCESS_FLAGS_PROT_READ, 1) \
  X(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3)

#define CUDA_ABI_GRANULARITIES(X)        \
  X(CU_MEM_ALLOC_GRANULARITY_MINIMUM, 0) \
  X(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED, 1)

#define CUDA_ABI_PROC_ADDRESS_FLAGS(X) X(CU_GET_PROC_ADDRESS_LEGACY_STREAM, 1)

#define CUDA_ABI_RANGE_HANDLES(X) X(CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 1)

#define CUDA_ABI_STREAM_FLAGS(X) \
  X(CU_STREAM_DEFAULT, 0)        \
  X(CU_STREAM_NON_BLOCKING, 1)

#define CUDA_ABI_ATTACH_FLAGS(X) \
  X(CU_MEM_ATTACH_GLOBAL, 1)     \
  X(CU_MEM_ATTACH_HOST, 2)       \
  X(CU_MEM_ATTACH_SINGLE, 4)

// E(enumeration's name, its list), for all of them.
#define CUDA_ABI_ENUMS(E)                                     \
  E(CUresult, CUDA_ABI_RESULTS)                               \
  E(CUdevice_attribute, CUDA_ABI_DEVICE_ATTRIBUTES)           \
  E(CUdevice_P2PAttribute, CUDA_ABI_P2P_ATTRIBUTES)           \
  E(CUpointer_attribute, CUDA_ABI_POINTER_ATTRIBUTES)         \
  E(CUmemorytype, CUDA_ABI_MEMORY_TYPES)                      \
  E(CUmem_advise, CUDA_ABI_ADVICE)                            \
  E(CUmem_range_attribute, CUDA_ABI_RANGE_ATTRIBUTES)         \
  E(CUmemLocationType, CUDA_ABI_LOCATION_TYPES)               \
  E(CUmemAllocationType, CUDA_ABI_ALLOCATION_TYPES)           \
  E(CUmemAllocationHandleType, CUDA_ABI_HANDLE_TYPES)         \
  E(CUmemAccess_flags, CUDA_ABI_ACCESS_FLAGS)                 \
  E(CUmemAllocationGranularity_flags, CUDA_ABI_GRANULARITIES) \
  E(CUdriverProcAddress_flags, CUDA_ABI_PROC_ADDRESS_FLAGS)   \
  E(CUmemRangeHandleType, CUDA_ABI_RANGE_HANDLES)             \
  E(CUstream_flags, CUDA_ABI_STREAM_FLAGS)                    \
  E(CUmemAttach_flags, CUDA_ABI_ATTACH_FLAGS)

#define CUDA_ABI_VALUE(name, value) name = value,
#define CUDA_ABI_ENUM(enumeration, values) enum enumeration : unsigned int { values(CUDA_ABI_VALUE) };
CUDA_ABI_ENUMS(CUDA_ABI_ENUM)
#undef CUDA_ABI_ENUM
#undef CUDA_ABI_VALUE

using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUmemGenericAllocationHandle = unsigned long long;
struct CUctx_st;
struct CUstream_st;
struct CUevent_st;
using CUcontext = CUctx_st*;
using CUstream = CUstream_st*;
using CUevent = CUevent_st*;

struct CUuuid {
  char bytes[16];
};

struct CUmemLocation {
  CUmemLocationType type;
  int id;
};

struct CUmemAccessDesc {
  CUmemLocation location;
  CUmemAccess_flags flags;
};

struct CUmemAllocationProp {
  CUmemAllocationType type;
  CUmemAllocationHandleType requestedHandleTypes;
  CUmemLocation location;
  void* win32HandleMetaData;
  struct {
    unsigned char compressionType;
    unsigned char gpuDirectRDMACapable;
    unsigned short usage;
    unsigned char reserved[4];
  } allocFlags;
};

}  // namespace cuda_abi
