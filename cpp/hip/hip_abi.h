// HIP's C ABI as hipplan uses it: types, values and structs, in the form that HIP 6.1 to 7.x share.
//
// Declared here once instead of including HIP's own headers because (a) the core links no HIP library
// and must build where none is installed, (b) HIP 5.x has another struct layout and (c) newer headers
// rename functions by macro. Wherever real headers of 6.1 or later are found, abi_check.cpp holds every
// size, offset, value and prototype against them. Functions: hip_calls.def.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hip_abi {

// Every error hipplan or its runtimes may name. X(name, value).
#define HIP_ABI_ERRORS(X)                     \
  X(hipSuccess, 0)                            \
  X(hipErrorInvalidValue, 1)                  \
  X(hipErrorOutOfMemory, 2)                   \
  X(hipErrorNotInitialized, 3)                \
  X(hipErrorDeinitialized, 4)                 \
  X(hipErrorProfilerDisabled, 5)              \
  X(hipErrorProfilerNotInitialized, 6)        \
  X(hipErrorProfilerAlreadyStarted, 7)        \
  X(hipErrorProfilerAlreadyStopped, 8)        \
  X(hipErrorInvalidConfiguration, 9)          \
  X(hipErrorInvalidPitchValue, 12)            \
  X(hipErrorInvalidSymbol, 13)                \
  X(hipErrorInvalidDevicePointer, 17)         \
  X(hipErrorInvalidMemcpyDirection, 21)       \
  X(hipErrorInsufficientDriver, 35)           \
  X(hipErrorMissingConfiguration, 52)         \
  X(hipErrorPriorLaunchFailure, 53)           \
  X(hipErrorInvalidDeviceFunction, 98)        \
  X(hipErrorNoDevice, 100)                    \
  X(hipErrorInvalidDevice, 101)               \
  X(hipErrorInvalidImage, 200)                \
  X(hipErrorInvalidContext, 201)              \
  X(hipErrorContextAlreadyCurrent, 202)       \
  X(hipErrorMapFailed, 205)                   \
  X(hipErrorUnmapFailed, 206)                 \
  X(hipErrorArrayIsMapped, 207)               \
  X(hipErrorAlreadyMapped, 208)               \
  X(hipErrorNoBinaryForGpu, 209)              \
  X(hipErrorAlreadyAcquired, 210)             \
  X(hipErrorNotMapped, 211)                   \
  X(hipErrorNotMappedAsArray, 212)            \
  X(hipErrorNotMappedAsPointer, 213)          \
  X(hipErrorECCNotCorrectable, 214)           \
  X(hipErrorUnsupportedLimit, 215)            \
  X(hipErrorContextAlreadyInUse, 216)         \
  X(hipErrorPeerAccessUnsupported, 217)       \
  X(hipErrorInvalidKernelFile, 218)           \
  X(hipErrorInvalidGraphicsContext, 219)      \
  X(hipErrorInvalidSource, 300)               \
  X(hipErrorFileNotFound, 301)                \
  X(hipErrorSharedObjectSymbolNotFound, 302)  \
  X(hipErrorSharedObjectInitFailed, 303)      \
  X(hipErrorOperatingSystem, 304)             \
  X(hipErrorInvalidHandle, 400)               \
  X(hipErrorIllegalState, 401)                \
  X(hipErrorNotFound, 500)                    \
  X(hipErrorNotReady, 600)                    \
  X(hipErrorIllegalAddress, 700)              \
  X(hipErrorLaunchOutOfResources, 701)        \
  X(hipErrorLaunchTimeOut, 702)               \
  X(hipErrorPeerAccessAlreadyEnabled, 704)    \
  X(hipErrorPeerAccessNotEnabled, 705)        \
  X(hipErrorSetOnActiveProcess, 708)          \
  X(hipErrorContextIsDestroyed, 709)          \
  X(hipErrorAssert, 710)                      \
  X(hipErrorHostMemoryAlreadyRegistered, 712) \
  X(hipErrorHostMemoryNotRegistered, 713)     \
  X(hipErrorLaunchFailure, 719)               \
  X(hipErrorCooperativeLaunchTooLarge, 720)   \
  X(hipErrorNotSupported, 801)                \
  X(hipErrorStreamCaptureUnsupported, 900)    \
  X(hipErrorStreamCaptureInvalidated, 901)    \
  X(hipErrorStreamCaptureMerge, 902)          \
  X(hipErrorStreamCaptureUnmatched, 903)      \
  X(hipErrorStreamCaptureUnjoined, 904)       \
  X(hipErrorStreamCaptureIsolation, 905)      \
  X(hipErrorStreamCaptureImplicit, 906)       \
  X(hipErrorCapturedEvent, 907)               \
  X(hipErrorStreamCaptureWrongThread, 908)    \
  X(hipErrorGraphExecUpdateFailure, 910)      \
  X(hipErrorUnknown, 999)                     \
  X(hipErrorRuntimeMemory, 1052)              \
  X(hipErrorRuntimeOther, 1053)               \
  X(hipErrorTbd, 1054)

enum hipError_t : unsigned int {
#define HIP_ABI_ERROR(name, value) name = value,
  HIP_ABI_ERRORS(HIP_ABI_ERROR)
#undef HIP_ABI_ERROR
};

enum hipMemoryType : unsigned int {  // the numbers of 6.0 and later; 5.x had others
  hipMemoryTypeUnregistered = 0,
  hipMemoryTypeHost = 1,
  hipMemoryTypeDevice = 2,
  hipMemoryTypeManaged = 3,
  hipMemoryTypeArray = 10,
  hipMemoryTypeUnified = 11,
};

enum hipMemcpyKind : unsigned int {
  hipMemcpyHostToHost = 0,
  hipMemcpyHostToDevice = 1,
  hipMemcpyDeviceToHost = 2,
  hipMemcpyDeviceToDevice = 3,
  hipMemcpyDefault = 4,
  hipMemcpyDeviceToDeviceNoCU = 1024,
};

enum hipMemAllocationType : unsigned int {
  hipMemAllocationTypeInvalid = 0,
  hipMemAllocationTypePinned = 1,
  hipMemAllocationTypeUncached = 0x40000000,  // since 7.0.2
};

enum hipMemAllocationHandleType : unsigned int {
  hipMemHandleTypeNone = 0,
  hipMemHandleTypePosixFileDescriptor = 1,
  hipMemHandleTypeWin32 = 2,
  hipMemHandleTypeWin32Kmt = 4,
};

enum hipMemRangeHandleType : unsigned int {  // since 7.0
  hipMemRangeHandleTypeDmaBufFd = 1,
};

enum hipMemLocationType : unsigned int {
  hipMemLocationTypeInvalid = 0,
  hipMemLocationTypeDevice = 1,
  hipMemLocationTypeHost = 2,  // since 7.1 in the types, 7.2 in the runtime
  hipMemLocationTypeHostNuma = 3,
  hipMemLocationTypeHostNumaCurrent = 4,
};

enum hipMemAccessFlags : unsigned int {
  hipMemAccessFlagsProtNone = 0,
  hipMemAccessFlagsProtRead = 1,
  hipMemAccessFlagsProtReadWrite = 3,
};

enum hipMemAllocationGranularity_flags : unsigned int {
  hipMemAllocationGranularityMinimum = 0,
  hipMemAllocationGranularityRecommended = 1,
};

enum hipMemoryAdvise : unsigned int {
  hipMemAdviseSetReadMostly = 1,
  hipMemAdviseUnsetReadMostly = 2,
  hipMemAdviseSetPreferredLocation = 3,
  hipMemAdviseUnsetPreferredLocation = 4,
  hipMemAdviseSetAccessedBy = 5,
  hipMemAdviseUnsetAccessedBy = 6,
  hipMemAdviseSetCoarseGrain = 100,
  hipMemAdviseUnsetCoarseGrain = 101,
};

enum hipMemRangeAttribute : unsigned int {
  hipMemRangeAttributeReadMostly = 1,
  hipMemRangeAttributePreferredLocation = 2,
  hipMemRangeAttributeAccessedBy = 3,
  hipMemRangeAttributeLastPrefetchLocation = 4,
  hipMemRangeAttributeCoherencyMode = 100,
};

enum hipDeviceP2PAttr : unsigned int {
  hipDevP2PAttrPerformanceRank = 0,
  hipDevP2PAttrAccessSupported = 1,
  hipDevP2PAttrNativeAtomicSupported = 2,
  hipDevP2PAttrHipArrayAccessSupported = 3,
};

// Only the attributes hipplan asks for; the numbers have not moved between 5.3 and 10.x.
enum hipDeviceAttribute_t : unsigned int {
  hipDeviceAttributeCanMapHostMemory = 3,
  hipDeviceAttributeCanUseHostPointerForRegisteredMem = 4,
  hipDeviceAttributeConcurrentManagedAccess = 9,
  hipDeviceAttributeDirectManagedMemAccessFromHost = 13,
  hipDeviceAttributeHostNativeAtomicSupported = 15,
  hipDeviceAttributeIntegrated = 16,
  hipDeviceAttributeComputeCapabilityMajor = 23,
  hipDeviceAttributeManagedMemory = 24,
  hipDeviceAttributeComputeCapabilityMinor = 61,
  hipDeviceAttributeMultiprocessorCount = 63,
  hipDeviceAttributePageableMemoryAccess = 65,
  hipDeviceAttributePageableMemoryAccessUsesHostPageTables = 66,
  hipDeviceAttributePciBusId = 67,
  hipDeviceAttributePciDeviceId = 68,
  hipDeviceAttributePciDomainID = 69,
  hipDeviceAttributeTotalGlobalMem = 84,
  hipDeviceAttributeUnifiedAddressing = 85,
  hipDeviceAttributeWarpSize = 87,
  hipDeviceAttributeMemoryPoolsSupported = 88,
  hipDeviceAttributeVirtualMemoryManagementSupported = 89,
  hipDeviceAttributeHostRegisterSupported = 90,
  hipDeviceAttributeMemoryPoolSupportedHandleTypes = 91,
  hipDeviceAttributeGPUDirectRDMAWithHipVMM = 94,  // since 7.13
  hipDeviceAttributeIsLargeBar = 10011,
  hipDeviceAttributeFineGrainSupport = 10016,
};

// Flag words (macros in HIP's headers).
inline constexpr unsigned int hipMemAttachGlobal = 1;
inline constexpr unsigned int hipMemAttachHost = 2;
inline constexpr unsigned int hipMemAttachSingle = 4;
inline constexpr unsigned int hipDeviceMallocFinegrained = 1;
inline constexpr unsigned int hipDeviceMallocUncached = 3;
inline constexpr unsigned int hipHostMallocDefault = 0;
inline constexpr unsigned int hipHostMallocPortable = 1;
inline constexpr unsigned int hipHostMallocMapped = 2;
inline constexpr unsigned int hipHostMallocWriteCombined = 4;
inline constexpr unsigned int hipHostMallocUncached = 0x10000000;  // since 7.0
inline constexpr unsigned int hipHostMallocNumaUser = 0x20000000;
inline constexpr unsigned int hipHostMallocCoherent = 0x40000000;
inline constexpr unsigned int hipHostMallocNonCoherent = 0x80000000;
inline constexpr unsigned int hipHostRegisterDefault = 0;
inline constexpr unsigned int hipHostRegisterPortable = 1;
inline constexpr unsigned int hipHostRegisterMapped = 2;
inline constexpr unsigned int hipHostRegisterIoMemory = 4;
inline constexpr unsigned int hipHostRegisterReadOnly = 8;
inline constexpr unsigned int hipStreamDefault = 0;
inline constexpr unsigned int hipStreamNonBlocking = 1;
inline constexpr unsigned int hipEventDisableTiming = 2;
inline constexpr int hipCpuDeviceId = -1;
inline constexpr int hipInvalidDeviceId = -2;

struct ihipStream_t;
struct ihipEvent_t;
struct ihipMemGenericAllocationHandle;
struct hipArrayMapInfo;  // opaque: hipMemMapArrayAsync is refused by every AMD runtime
using hipStream_t = ihipStream_t*;
using hipEvent_t = ihipEvent_t*;
using hipMemGenericAllocationHandle_t = ihipMemGenericAllocationHandle*;
using hipDevice_t = int;

struct hipUUID {
  char bytes[16];
};

struct hipMemLocation {
  hipMemLocationType type;
  int id;
};

struct hipMemAccessDesc {
  hipMemLocation location;
  hipMemAccessFlags flags;
};

struct hipMemAllocationProp {
  hipMemAllocationType type;
  hipMemAllocationHandleType requestedHandleType;
  hipMemLocation location;
  void* win32HandleMetaData;
  struct {
    unsigned char compressionType;
    unsigned char gpuDirectRDMACapable;
    unsigned short usage;
  } allocFlags;
};

struct hipPointerAttribute_t {
  hipMemoryType type;
  int device;
  void* devicePointer;
  void* hostPointer;
  int isManaged;
  unsigned int allocationFlags;
};

// hipGetDevicePropertiesR0600 fills 1472 bytes; only the named fields are ours.
struct hipDeviceProp_tR0600 {
  char name[256];
  hipUUID uuid;
  char unused_272[16];
  std::size_t totalGlobalMem;  // offset 288
  char unused_296[864];
  char gcnArchName[256];  // offset 1160
  char unused_1416[56];
};

}  // namespace hip_abi
