// Holds hip_abi.h and hip_calls.def against real HIP headers of 6.1 or later, at compile time.
// Compiled only where such headers are found; it produces no code.
#include <cstddef>
#include <type_traits>

#include "hip_abi.h"

// Flag words are macros in HIP's headers: hip_abi.h's values are stored before those headers are included.
#define FLAGS(X)                \
  X(hipMemAttachGlobal)         \
  X(hipMemAttachHost)           \
  X(hipMemAttachSingle)         \
  X(hipDeviceMallocFinegrained) \
  X(hipDeviceMallocUncached)    \
  X(hipHostMallocPortable)      \
  X(hipHostMallocMapped)        \
  X(hipHostMallocWriteCombined) \
  X(hipHostMallocNumaUser)      \
  X(hipHostMallocCoherent)      \
  X(hipHostMallocNonCoherent)   \
  X(hipHostRegisterPortable)    \
  X(hipHostRegisterMapped)      \
  X(hipHostRegisterIoMemory)    \
  X(hipHostRegisterReadOnly)    \
  X(hipStreamNonBlocking)       \
  X(hipEventDisableTiming)      \
  X(hipCpuDeviceId)             \
  X(hipInvalidDeviceId)
#define KEEP_VALUE(name) constexpr auto own_##name = hip_abi::name;
namespace {
FLAGS(KEEP_VALUE)
}  // namespace

namespace hip_abi {
#define HIP_CALL(name, params, args) using name##_function = hipError_t params;
#include "hip_calls.def"
}  // namespace hip_abi

#define __HIP_PLATFORM_AMD__ 1
#define HIP_FORCE_API_VERSION 700  // newer headers rename hipMemAdvise and others by macro otherwise
#include <hip/hip_runtime_api.h>

namespace {

// The type of HIP's headers for a type of hip_abi.h. Scalars are the same; enums and structs are listed.
template <class Own>
struct real {
  using type = Own;
};
template <class Own>
struct real<Own*> {
  using type = typename real<Own>::type*;
};
template <class Own>
struct real<const Own> {
  using type = const typename real<Own>::type;
};
#define REAL_TYPE(own, header_name) \
  template <>                       \
  struct real<hip_abi::own> {       \
    using type = ::header_name;     \
  };
REAL_TYPE(hipError_t, hipError_t)
REAL_TYPE(hipMemcpyKind, hipMemcpyKind)
REAL_TYPE(hipMemAllocationHandleType, hipMemAllocationHandleType)
REAL_TYPE(hipMemAllocationGranularity_flags, hipMemAllocationGranularity_flags)
REAL_TYPE(hipMemoryAdvise, hipMemoryAdvise)
#if HIP_VERSION >= 70000000
REAL_TYPE(hipMemRangeHandleType, hipMemRangeHandleType)
#endif
REAL_TYPE(hipMemRangeAttribute, hipMemRangeAttribute)
REAL_TYPE(hipDeviceP2PAttr, hipDeviceP2PAttr)
REAL_TYPE(hipDeviceAttribute_t, hipDeviceAttribute_t)
REAL_TYPE(hipMemLocation, hipMemLocation)
REAL_TYPE(hipMemAccessDesc, hipMemAccessDesc)
REAL_TYPE(hipMemAllocationProp, hipMemAllocationProp)
REAL_TYPE(hipPointerAttribute_t, hipPointerAttribute_t)
REAL_TYPE(hipUUID, hipUUID)
REAL_TYPE(hipArrayMapInfo, hipArrayMapInfo)
REAL_TYPE(ihipStream_t, ihipStream_t)
REAL_TYPE(ihipEvent_t, ihipEvent_t)
REAL_TYPE(ihipMemGenericAllocationHandle, ihipMemGenericAllocationHandle)
REAL_TYPE(hipDeviceProp_tR0600, hipDeviceProp_t)

template <class Function>
struct in_real_types;
template <class Result, class... Args>
struct in_real_types<Result(Args...)> {
  using type = typename real<Result>::type (*)(typename real<Args>::type...);
};

// A cast picks the one overload with this very prototype (C++ headers add templates of the same names).
#define HIP_CALL(name, params, args)                                                     \
  static_assert(                                                                         \
      requires { static_cast<in_real_types<hip_abi::name##_function>::type>(&::name); }, \
      #name " has another prototype in these HIP headers");
#if HIP_VERSION < 70000000  // these lack some of the optional calls
#define HIP_CALL_OPTIONAL(name, params, args)
#endif
#include "hip_calls.def"

#define SAME_VALUE(name)                                                               \
  static_assert(static_cast<unsigned>(::name) == static_cast<unsigned>(hip_abi::name), \
                #name " has another value in these HIP headers");
#define HIP_ABI_ERROR(name, value) SAME_VALUE(name)
HIP_ABI_ERRORS(HIP_ABI_ERROR)
#undef HIP_ABI_ERROR
SAME_VALUE(hipMemoryTypeUnregistered)
SAME_VALUE(hipMemoryTypeHost)
SAME_VALUE(hipMemoryTypeDevice)
SAME_VALUE(hipMemoryTypeManaged)
SAME_VALUE(hipMemoryTypeArray)
SAME_VALUE(hipMemoryTypeUnified)
SAME_VALUE(hipMemcpyHostToHost)
SAME_VALUE(hipMemcpyHostToDevice)
SAME_VALUE(hipMemcpyDeviceToHost)
SAME_VALUE(hipMemcpyDeviceToDevice)
SAME_VALUE(hipMemcpyDefault)
SAME_VALUE(hipMemAllocationTypeInvalid)
SAME_VALUE(hipMemAllocationTypePinned)
#if HIP_VERSION >= 70100000
SAME_VALUE(hipMemcpyDeviceToDeviceNoCU)
SAME_VALUE(hipMemAllocationTypeUncached)
SAME_VALUE(hipMemLocationTypeHost)
SAME_VALUE(hipMemLocationTypeHostNuma)
SAME_VALUE(hipMemLocationTypeHostNumaCurrent)
#endif
SAME_VALUE(hipMemHandleTypeNone)
SAME_VALUE(hipMemHandleTypePosixFileDescriptor)
SAME_VALUE(hipMemHandleTypeWin32)
SAME_VALUE(hipMemHandleTypeWin32Kmt)
SAME_VALUE(hipMemLocationTypeInvalid)
SAME_VALUE(hipMemLocationTypeDevice)
SAME_VALUE(hipMemAccessFlagsProtNone)
SAME_VALUE(hipMemAccessFlagsProtRead)
SAME_VALUE(hipMemAccessFlagsProtReadWrite)
SAME_VALUE(hipMemAllocationGranularityMinimum)
SAME_VALUE(hipMemAllocationGranularityRecommended)
SAME_VALUE(hipMemAdviseSetReadMostly)
SAME_VALUE(hipMemAdviseUnsetReadMostly)
SAME_VALUE(hipMemAdviseSetPreferredLocation)
SAME_VALUE(hipMemAdviseUnsetPreferredLocation)
SAME_VALUE(hipMemAdviseSetAccessedBy)
SAME_VALUE(hipMemAdviseUnsetAccessedBy)
SAME_VALUE(hipMemAdviseSetCoarseGrain)
SAME_VALUE(hipMemAdviseUnsetCoarseGrain)
SAME_VALUE(hipMemRangeAttributeReadMostly)
SAME_VALUE(hipMemRangeAttributePreferredLocation)
SAME_VALUE(hipMemRangeAttributeAccessedBy)
SAME_VALUE(hipMemRangeAttributeLastPrefetchLocation)
SAME_VALUE(hipMemRangeAttributeCoherencyMode)
SAME_VALUE(hipDevP2PAttrPerformanceRank)
SAME_VALUE(hipDevP2PAttrAccessSupported)
SAME_VALUE(hipDevP2PAttrNativeAtomicSupported)
SAME_VALUE(hipDevP2PAttrHipArrayAccessSupported)
SAME_VALUE(hipDeviceAttributeCanMapHostMemory)
SAME_VALUE(hipDeviceAttributeCanUseHostPointerForRegisteredMem)
SAME_VALUE(hipDeviceAttributeConcurrentManagedAccess)
SAME_VALUE(hipDeviceAttributeDirectManagedMemAccessFromHost)
SAME_VALUE(hipDeviceAttributeHostNativeAtomicSupported)
SAME_VALUE(hipDeviceAttributeIntegrated)
SAME_VALUE(hipDeviceAttributeComputeCapabilityMajor)
SAME_VALUE(hipDeviceAttributeManagedMemory)
SAME_VALUE(hipDeviceAttributeComputeCapabilityMinor)
SAME_VALUE(hipDeviceAttributeMultiprocessorCount)
SAME_VALUE(hipDeviceAttributePageableMemoryAccess)
SAME_VALUE(hipDeviceAttributePageableMemoryAccessUsesHostPageTables)
SAME_VALUE(hipDeviceAttributePciBusId)
SAME_VALUE(hipDeviceAttributePciDeviceId)
SAME_VALUE(hipDeviceAttributePciDomainID)
SAME_VALUE(hipDeviceAttributeTotalGlobalMem)
SAME_VALUE(hipDeviceAttributeUnifiedAddressing)
SAME_VALUE(hipDeviceAttributeWarpSize)
SAME_VALUE(hipDeviceAttributeMemoryPoolsSupported)
SAME_VALUE(hipDeviceAttributeVirtualMemoryManagementSupported)
SAME_VALUE(hipDeviceAttributeHostRegisterSupported)
SAME_VALUE(hipDeviceAttributeMemoryPoolSupportedHandleTypes)
SAME_VALUE(hipDeviceAttributeIsLargeBar)
SAME_VALUE(hipDeviceAttributeFineGrainSupport)

#define SAME_FLAG(name) static_assert((name) == own_##name, #name " has another value in these HIP headers");
FLAGS(SAME_FLAG)

#define SAME_SIZE(real, abi) \
  static_assert(sizeof(::real) == sizeof(hip_abi::abi), #real " has another size in these HIP headers")
#define SAME_OFFSET(real, abi, field)                                       \
  static_assert(offsetof(::real, field) == offsetof(hip_abi::abi, field) && \
                    sizeof(::real::field) == sizeof(hip_abi::abi::field),   \
                #real "." #field " lies elsewhere in these HIP headers")
SAME_SIZE(hipUUID, hipUUID);
SAME_SIZE(hipMemLocation, hipMemLocation);
SAME_OFFSET(hipMemLocation, hipMemLocation, type);
SAME_OFFSET(hipMemLocation, hipMemLocation, id);
SAME_SIZE(hipMemAccessDesc, hipMemAccessDesc);
SAME_OFFSET(hipMemAccessDesc, hipMemAccessDesc, location);
SAME_OFFSET(hipMemAccessDesc, hipMemAccessDesc, flags);
SAME_SIZE(hipMemAllocationProp, hipMemAllocationProp);
SAME_OFFSET(hipMemAllocationProp, hipMemAllocationProp, type);
SAME_OFFSET(hipMemAllocationProp, hipMemAllocationProp, requestedHandleType);
SAME_OFFSET(hipMemAllocationProp, hipMemAllocationProp, location);
SAME_OFFSET(hipMemAllocationProp, hipMemAllocationProp, win32HandleMetaData);
SAME_OFFSET(hipMemAllocationProp, hipMemAllocationProp, allocFlags);
SAME_OFFSET(hipMemAllocationProp, hipMemAllocationProp, allocFlags.compressionType);
SAME_OFFSET(hipMemAllocationProp, hipMemAllocationProp, allocFlags.gpuDirectRDMACapable);
SAME_OFFSET(hipMemAllocationProp, hipMemAllocationProp, allocFlags.usage);
SAME_SIZE(hipPointerAttribute_t, hipPointerAttribute_t);
SAME_OFFSET(hipPointerAttribute_t, hipPointerAttribute_t, type);
SAME_OFFSET(hipPointerAttribute_t, hipPointerAttribute_t, device);
SAME_OFFSET(hipPointerAttribute_t, hipPointerAttribute_t, devicePointer);
SAME_OFFSET(hipPointerAttribute_t, hipPointerAttribute_t, hostPointer);
SAME_OFFSET(hipPointerAttribute_t, hipPointerAttribute_t, isManaged);
SAME_OFFSET(hipPointerAttribute_t, hipPointerAttribute_t, allocationFlags);
SAME_SIZE(hipDeviceProp_t, hipDeviceProp_tR0600);
SAME_OFFSET(hipDeviceProp_t, hipDeviceProp_tR0600, name);
SAME_OFFSET(hipDeviceProp_t, hipDeviceProp_tR0600, uuid);
SAME_OFFSET(hipDeviceProp_t, hipDeviceProp_tR0600, totalGlobalMem);
SAME_OFFSET(hipDeviceProp_t, hipDeviceProp_tR0600, gcnArchName);

}  // namespace
