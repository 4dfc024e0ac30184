#include "translate.hpp"

#include <cstdio>
#include <mutex>
#include <set>

#include "driver_table.hpp"

namespace hipcuda {
namespace {

// Where the numbers are equal a cast is the translation; a number that changes stops the build.
#define EQUAL(hip, cuda) static_assert(static_cast<unsigned>(hip) == static_cast<unsigned>(cuda), #hip)
EQUAL(hipMemAllocationTypeInvalid, CU_MEM_ALLOCATION_TYPE_INVALID);
EQUAL(hipMemAllocationTypePinned, CU_MEM_ALLOCATION_TYPE_PINNED);
EQUAL(hipMemHandleTypeNone, CU_MEM_HANDLE_TYPE_NONE);
EQUAL(hipMemHandleTypePosixFileDescriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
EQUAL(hipMemHandleTypeWin32, CU_MEM_HANDLE_TYPE_WIN32);
EQUAL(hipMemHandleTypeWin32Kmt, CU_MEM_HANDLE_TYPE_WIN32_KMT);
EQUAL(hipMemLocationTypeInvalid, CU_MEM_LOCATION_TYPE_INVALID);
EQUAL(hipMemLocationTypeDevice, CU_MEM_LOCATION_TYPE_DEVICE);
EQUAL(hipMemLocationTypeHost, CU_MEM_LOCATION_TYPE_HOST);
EQUAL(hipMemLocationTypeHostNuma, CU_MEM_LOCATION_TYPE_HOST_NUMA);
EQUAL(hipMemLocationTypeHostNumaCurrent, CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT);
EQUAL(hipMemAccessFlagsProtNone, CU_MEM_ACCESS_FLAGS_PROT_NONE);
EQUAL(hipMemAccessFlagsProtRead, CU_MEM_ACCESS_FLAGS_PROT_READ);
EQUAL(hipMemAccessFlagsProtReadWrite, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
EQUAL(hipMemAllocationGranularityMinimum, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
EQUAL(hipMemAllocationGranularityRecommended, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
EQUAL(hipMemAdviseSetReadMostly, CU_MEM_ADVISE_SET_READ_MOSTLY);
EQUAL(hipMemAdviseUnsetReadMostly, CU_MEM_ADVISE_UNSET_READ_MOSTLY);
EQUAL(hipMemAdviseSetPreferredLocation, CU_MEM_ADVISE_SET_PREFERRED_LOCATION);
EQUAL(hipMemAdviseUnsetPreferredLocation, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION);
EQUAL(hipMemAdviseSetAccessedBy, CU_MEM_ADVISE_SET_ACCESSED_BY);
EQUAL(hipMemAdviseUnsetAccessedBy, CU_MEM_ADVISE_UNSET_ACCESSED_BY);
EQUAL(hipMemRangeAttributeReadMostly, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY);
EQUAL(hipMemRangeAttributePreferredLocation, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION);
EQUAL(hipMemRangeAttributeAccessedBy, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY);
EQUAL(hipMemRangeAttributeLastPrefetchLocation, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION);
EQUAL(hipMemAttachGlobal, CU_MEM_ATTACH_GLOBAL);
EQUAL(hipMemAttachHost, CU_MEM_ATTACH_HOST);
EQUAL(hipMemAttachSingle, CU_MEM_ATTACH_SINGLE);
EQUAL(hipStreamDefault, CU_STREAM_DEFAULT);
EQUAL(hipStreamNonBlocking, CU_STREAM_NON_BLOCKING);
#undef EQUAL

static_assert(sizeof(hipMemAccessDesc) == sizeof(CUmemAccessDesc) &&
              offsetof(hipMemAccessDesc, location) == offsetof(CUmemAccessDesc, location) &&
              offsetof(hipMemAccessDesc, flags) == offsetof(CUmemAccessDesc, flags) &&
              offsetof(hipMemLocation, type) == offsetof(CUmemLocation, type) &&
              offsetof(hipMemLocation, id) == offsetof(CUmemLocation, id));

// Results that mean the same in both. X(CUDA's name without CUDA_, HIP's name).
#define SAME_RESULTS(X)                                                        \
  X(SUCCESS, hipSuccess)                                                       \
  X(ERROR_INVALID_VALUE, hipErrorInvalidValue)                                 \
  X(ERROR_OUT_OF_MEMORY, hipErrorOutOfMemory)                                  \
  X(ERROR_NOT_INITIALIZED, hipErrorNotInitialized)                             \
  X(ERROR_DEINITIALIZED, hipErrorDeinitialized)                                \
  X(ERROR_NO_DEVICE, hipErrorNoDevice)                                         \
  X(ERROR_INVALID_DEVICE, hipErrorInvalidDevice)                               \
  X(ERROR_INVALID_CONTEXT, hipErrorInvalidContext)                             \
  X(ERROR_MAP_FAILED, hipErrorMapFailed)                                       \
  X(ERROR_UNMAP_FAILED, hipErrorUnmapFailed)                                   \
  X(ERROR_ALREADY_MAPPED, hipErrorAlreadyMapped)                               \
  X(ERROR_NOT_MAPPED, hipErrorNotMapped)                                       \
  X(ERROR_UNSUPPORTED_LIMIT, hipErrorUnsupportedLimit)                         \
  X(ERROR_PEER_ACCESS_UNSUPPORTED, hipErrorPeerAccessUnsupported)              \
  X(ERROR_ECC_UNCORRECTABLE, hipErrorECCNotCorrectable)                        \
  X(ERROR_SHARED_OBJECT_INIT_FAILED, hipErrorSharedObjectInitFailed)           \
  X(ERROR_OPERATING_SYSTEM, hipErrorOperatingSystem)                           \
  X(ERROR_INVALID_HANDLE, hipErrorInvalidHandle)                               \
  X(ERROR_ILLEGAL_STATE, hipErrorIllegalState)                                 \
  X(ERROR_NOT_FOUND, hipErrorNotFound)                                         \
  X(ERROR_NOT_READY, hipErrorNotReady)                                         \
  X(ERROR_ILLEGAL_ADDRESS, hipErrorIllegalAddress)                             \
  X(ERROR_LAUNCH_TIMEOUT, hipErrorLaunchTimeOut)                               \
  X(ERROR_PEER_ACCESS_ALREADY_ENABLED, hipErrorPeerAccessAlreadyEnabled)       \
  X(ERROR_PEER_ACCESS_NOT_ENABLED, hipErrorPeerAccessNotEnabled)               \
  X(ERROR_CONTEXT_IS_DESTROYED, hipErrorContextIsDestroyed)                    \
  X(ERROR_ASSERT, hipErrorAssert)                                              \
  X(ERROR_HOST_MEMORY_ALREADY_REGISTERED, hipErrorHostMemoryAlreadyRegistered) \
  X(ERROR_HOST_MEMORY_NOT_REGISTERED, hipErrorHostMemoryNotRegistered)         \
  X(ERROR_LAUNCH_FAILED, hipErrorLaunchFailure)                                \
  X(ERROR_NOT_SUPPORTED, hipErrorNotSupported)                                 \
  X(ERROR_STREAM_CAPTURE_UNSUPPORTED, hipErrorStreamCaptureUnsupported)        \
  X(ERROR_UNKNOWN, hipErrorUnknown)

#define SAME_NUMBER(cuda, hip) \
  static_assert(static_cast<unsigned>(CUDA_##cuda) == static_cast<unsigned>(hip));
SAME_RESULTS(SAME_NUMBER)
#undef SAME_NUMBER

void report_once(CUresult result) {
  static std::mutex mutex;
  static auto& reported = *new std::set<CUresult>;
  const std::scoped_lock lock(mutex);
  if (!reported.insert(result).second) return;
  const char* name = nullptr;
  const auto& calls = load_driver().calls;
  if (!calls.cuGetErrorName || calls.cuGetErrorName(result, &name) != CUDA_SUCCESS) name = nullptr;
  std::fprintf(stderr, "libhipcuda: CUDA error %u (%s) has no HIP counterpart: it becomes hipErrorUnknown\n",
               static_cast<unsigned>(result), name ? name : "unnamed");
}

}  // namespace

hipError_t to_hip(CUresult result) {
  switch (result) {
#define SAME_CASE(cuda, hip) \
  case CUDA_##cuda:          \
    return hip;
    SAME_RESULTS(SAME_CASE)
#undef SAME_CASE
    case CUDA_ERROR_STUB_LIBRARY:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
      return hipErrorNoDevice;
    case CUDA_ERROR_TOO_MANY_PEERS:
      return hipErrorPeerAccessUnsupported;
    // The device or a kernel has failed, and the context is lost. HIP has one error for all of these.
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
      return hipErrorLaunchFailure;
  }
  report_once(result);
  return hipErrorUnknown;
}

hipMemoryType to_hip(CUmemorytype type, bool managed) {
  if (managed) return hipMemoryTypeManaged;
  switch (type) {
    case CU_MEMORYTYPE_HOST:
      return hipMemoryTypeHost;
    case CU_MEMORYTYPE_DEVICE:
      return hipMemoryTypeDevice;
    case CU_MEMORYTYPE_ARRAY:
      return hipMemoryTypeArray;
    case CU_MEMORYTYPE_UNIFIED:
      return hipMemoryTypeUnified;
  }
  return hipMemoryTypeUnregistered;  // CUDA returns 0 for an unknown pointer
}

hipMemAllocationProp to_hip(const CUmemAllocationProp& prop) {
  hipMemAllocationProp out{};
  out.type = static_cast<hipMemAllocationType>(prop.type);
  out.requestedHandleType = static_cast<hipMemAllocationHandleType>(prop.requestedHandleTypes);
  out.location = {static_cast<hipMemLocationType>(prop.location.type), prop.location.id};
  out.win32HandleMetaData = prop.win32HandleMetaData;
  out.allocFlags.compressionType = prop.allocFlags.compressionType;
  out.allocFlags.gpuDirectRDMACapable = prop.allocFlags.gpuDirectRDMACapable;
  out.allocFlags.usage = prop.allocFlags.usage;
  return out;
}

CUmemAllocationProp to_cuda(const hipMemAllocationProp& prop) {
  require(prop.type != hipMemAllocationTypeUncached, hipErrorNotSupported);  // AMD's cache control
  require(prop.type == hipMemAllocationTypePinned);
  require(prop.requestedHandleType == hipMemHandleTypeNone ||
              prop.requestedHandleType == hipMemHandleTypePosixFileDescriptor,
          hipErrorNotSupported);
  CUmemAllocationProp out{};
  out.type = static_cast<CUmemAllocationType>(prop.type);
  out.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(prop.requestedHandleType);
  out.location = to_cuda(prop.location);
  out.win32HandleMetaData = prop.win32HandleMetaData;
  out.allocFlags.compressionType = prop.allocFlags.compressionType;
  out.allocFlags.gpuDirectRDMACapable = prop.allocFlags.gpuDirectRDMACapable;
  out.allocFlags.usage = prop.allocFlags.usage;
  return out;
}

CUmemLocation to_cuda(const hipMemLocation& location) {
  return {static_cast<CUmemLocationType>(location.type), location.id};
}

const CUmemAccessDesc* to_cuda(const hipMemAccessDesc* descriptions) {
  return reinterpret_cast<const CUmemAccessDesc*>(descriptions);  // the same layout: asserted above
}

CUmem_advise to_cuda(hipMemoryAdvise advice) {
  const bool amd_coherency = advice == hipMemAdviseSetCoarseGrain || advice == hipMemAdviseUnsetCoarseGrain;
  require(!amd_coherency, hipErrorNotSupported);
  require(advice >= hipMemAdviseSetReadMostly && advice <= hipMemAdviseUnsetAccessedBy);
  return static_cast<CUmem_advise>(advice);
}

CUmem_range_attribute to_cuda(hipMemRangeAttribute attribute) {
  require(attribute != hipMemRangeAttributeCoherencyMode, hipErrorNotSupported);
  require(attribute >= hipMemRangeAttributeReadMostly &&
          attribute <= hipMemRangeAttributeLastPrefetchLocation);
  return static_cast<CUmem_range_attribute>(attribute);
}

CUdevice_P2PAttribute to_cuda(hipDeviceP2PAttr attribute) {
  switch (attribute) {
    case hipDevP2PAttrPerformanceRank:
      return CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK;
    case hipDevP2PAttrAccessSupported:
      return CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
    case hipDevP2PAttrNativeAtomicSupported:
      return CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
    case hipDevP2PAttrHipArrayAccessSupported:
      return CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED;
  }
  fail(hipErrorInvalidValue);
}

std::optional<CUdevice_attribute> to_cuda(hipDeviceAttribute_t attribute) {
  switch (attribute) {
#define ATTRIBUTE(hip, cuda)    \
  case hipDeviceAttribute##hip: \
    return CU_DEVICE_ATTRIBUTE_##cuda;
    ATTRIBUTE(CanMapHostMemory, CAN_MAP_HOST_MEMORY)
    ATTRIBUTE(CanUseHostPointerForRegisteredMem, CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM)
    ATTRIBUTE(ConcurrentManagedAccess, CONCURRENT_MANAGED_ACCESS)
    ATTRIBUTE(DirectManagedMemAccessFromHost, DIRECT_MANAGED_MEM_ACCESS_FROM_HOST)
    ATTRIBUTE(HostNativeAtomicSupported, HOST_NATIVE_ATOMIC_SUPPORTED)
    ATTRIBUTE(Integrated, INTEGRATED)
    ATTRIBUTE(ComputeCapabilityMajor, COMPUTE_CAPABILITY_MAJOR)
    ATTRIBUTE(ManagedMemory, MANAGED_MEMORY)
    ATTRIBUTE(ComputeCapabilityMinor, COMPUTE_CAPABILITY_MINOR)
    ATTRIBUTE(MultiprocessorCount, MULTIPROCESSOR_COUNT)
    ATTRIBUTE(PageableMemoryAccess, PAGEABLE_MEMORY_ACCESS)
    ATTRIBUTE(PageableMemoryAccessUsesHostPageTables, PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES)
    ATTRIBUTE(PciBusId, PCI_BUS_ID)
    ATTRIBUTE(PciDeviceId, PCI_DEVICE_ID)
    ATTRIBUTE(PciDomainID, PCI_DOMAIN_ID)
    ATTRIBUTE(UnifiedAddressing, UNIFIED_ADDRESSING)
    ATTRIBUTE(WarpSize, WARP_SIZE)
    ATTRIBUTE(MemoryPoolsSupported, MEMORY_POOLS_SUPPORTED)
    ATTRIBUTE(VirtualMemoryManagementSupported, VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED)
    ATTRIBUTE(GPUDirectRDMAWithHipVMM, GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)
    ATTRIBUTE(HostRegisterSupported, HOST_REGISTER_SUPPORTED)
    ATTRIBUTE(MemoryPoolSupportedHandleTypes, MEMPOOL_SUPPORTED_HANDLE_TYPES)
    // Fine grain: pinned memory that CPU and GPU see coherently while a kernel runs; CUDA's mapped kind.
    ATTRIBUTE(FineGrainSupport, CAN_MAP_HOST_MEMORY)
#undef ATTRIBUTE
    case hipDeviceAttributeTotalGlobalMem:  // not attributes in CUDA: device_calls.cpp
    case hipDeviceAttributeIsLargeBar:
      break;
  }
  return std::nullopt;
}

unsigned int host_malloc_flags(unsigned int hip_flags) {
  const unsigned int coherency = hipHostMallocCoherent | hipHostMallocNonCoherent;
  require((hip_flags & coherency) != coherency);
  // CUDA's pinned memory is always coherent, which satisfies both coherency flags; the NUMA flag is a hint.
  // As in HIP, unknown bits are accepted.
  return hip_flags & (hipHostMallocPortable | hipHostMallocMapped | hipHostMallocWriteCombined);
}

unsigned int host_register_flags(unsigned int hip_flags) {
  constexpr unsigned int uncached = 0x80000000;  // HIP's hipExtHostRegisterUncached
  require((hip_flags & uncached) == 0, hipErrorNotSupported);
  require((hip_flags & ~(hipHostRegisterPortable | hipHostRegisterMapped | hipHostRegisterIoMemory |
                         hipHostRegisterReadOnly)) == 0);
  return hip_flags;
}

}  // namespace hipcuda
