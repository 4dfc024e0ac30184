// Virtual memory management on a real device.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "smoke.hpp"

namespace smoke {

namespace {

/// Asks for everything HIP can tell of a mapping of `size` bytes, which `handle` stands behind.
void read_back(hip_api& hip, void* mapping, std::size_t size, hipMemGenericAllocationHandle_t handle,
               const hipMemAllocationProp& prop) {
  hipMemAllocationProp found{};
  OK(hip.hipMemGetAllocationPropertiesFromHandle(&found, handle));
  WANT(std::memcmp(&found, &prop, sizeof(prop)) == 0);
  hipMemGenericAllocationHandle_t retained{};
  OK(hip.hipMemRetainAllocationHandle(&retained, at(mapping, size / 2)));
  WANT(retained == handle);
  OK(hip.hipMemRelease(retained));
  unsigned long long flags = 99;
  OK(hip.hipMemGetAccess(&flags, &prop.location, at(mapping, size / 2)));
  WANT(flags == hipMemAccessFlagsProtReadWrite);
  hipPointerAttribute_t attributes{};
  OK(hip.hipPointerGetAttributes(&attributes, at(mapping, 100)));
  WANT(attributes.type == hipMemoryTypeDevice && attributes.device == prop.location.id);
  void* range = nullptr;
  std::size_t range_size = 0;
  OK(hip.hipMemGetAddressRange(&range, &range_size, at(mapping, size / 2)));
  WANT(range == mapping && range_size == size);
}

}  // namespace

void virtual_memory(hip_api& hip, int device) {
  const auto prop = pinned_on(device);
  std::size_t chunk = 0, recommended = 0;
  OK(hip.hipMemGetAllocationGranularity(&chunk, &prop, hipMemAllocationGranularityMinimum));
  OK(hip.hipMemGetAllocationGranularity(&recommended, &prop, hipMemAllocationGranularityRecommended));
  std::printf("device %d: granularity %zu, recommended %zu\n", device, chunk, recommended);
  hipMemGenericAllocationHandle_t first{}, second{};
  void* base = nullptr;
  OK(hip.hipMemCreate(&first, chunk, &prop, 0));
  OK(hip.hipMemCreate(&second, 2 * chunk, &prop, 0));
  OK(hip.hipMemAddressReserve(&base, 5 * chunk, 0, nullptr, 0));
  OK(hip.hipMemMap(base, chunk, 0, first, 0));
  OK(hip.hipMemMap(at(base, chunk), chunk, 0, first, 0));  // an alias
  OK(hip.hipMemMap(at(base, 2 * chunk), 2 * chunk, 0, second, 0));
  unsigned long long flags = 99;
  const hipMemLocation here{hipMemLocationTypeDevice, device};
  OK(hip.hipMemGetAccess(&flags, &here, base));
  WANT(flags == hipMemAccessFlagsProtNone);
  const auto access = access_for(device);
  OK(hip.hipMemSetAccess(base, 4 * chunk, &access, 1));
  WANT(same_memory(hip, base, at(base, chunk), chunk, 7));
  WANT(same_memory(hip, at(base, 2 * chunk), at(base, 2 * chunk), 2 * chunk, 9));
  read_back(hip, at(base, 2 * chunk), 2 * chunk, second, prop);
  OK(hip.hipMemRelease(first));  // the mappings keep the memory
  OK(hip.hipMemRelease(second));
  WANT(same_memory(hip, at(base, chunk), base, chunk, 11));

  OK(hip.hipMemset(at(base, chunk / 2), 13, 3 * chunk));  // over three pieces
  OK(hip.hipMemUnmap(at(base, chunk), chunk));
  WANT_CODE(hipErrorInvalidValue, hip.hipMemset(base, 13, 4 * chunk));  // with a hole between
  WANT_CODE(hipErrorInvalidValue, hip.hipMemset(at(base, 2 * chunk), 13, 3 * chunk));
  OK(hip.hipMemset(at(base, 2 * chunk), 13, 2 * chunk));
  OK(hip.hipMemUnmap(base, chunk));
  OK(hip.hipMemUnmap(at(base, 2 * chunk), 2 * chunk));
  void* range = nullptr;
  std::size_t size = 0;
  hipPointerAttribute_t attributes{};
  WANT_CODE(hipErrorNotFound, hip.hipMemGetAddressRange(&range, &size, base));
  OK(hip.hipPointerGetAttributes(&attributes, base));
  WANT(attributes.type == hipMemoryTypeUnregistered && attributes.device == hipInvalidDeviceId);
  OK(hip.hipMemAddressFree(base, 5 * chunk));
}

/// The answers of the driver facts, and HIP's own for what it checks first.
void allocation_errors(hip_api& hip) {
  const auto prop = pinned_on(0), nowhere = pinned_on(99);
  hipMemGenericAllocationHandle_t handle{};
  const std::size_t chunk = 2 * MiB;
  WANT_CODE(hipErrorInvalidValue, hip.hipMemCreate(&handle, page, &prop, 0));
  WANT_CODE(hipErrorOutOfMemory, hip.hipMemCreate(&handle, std::size_t{4} << 40, &prop, 0));
  WANT_CODE(hipErrorInvalidDevice, hip.hipMemCreate(&handle, chunk, &nowhere, 0));
  WANT_CODE(hipErrorInvalidValue, hip.hipMemCreate(&handle, chunk, nullptr, 0));
  auto other = prop;
  other.type = hipMemAllocationTypeUncached;
  WANT_CODE(hipErrorNotSupported, hip.hipMemCreate(&handle, chunk, &other, 0));
  other = pinned_on(0, hipMemHandleTypeWin32);
  WANT_CODE(hipErrorNotSupported, hip.hipMemCreate(&handle, chunk, &other, 0));
  WANT_CODE(hipErrorInvalidValue, hip.hipMemRelease(nullptr));
  auto* const list = reinterpret_cast<hipArrayMapInfo*>(&handle);
  WANT_CODE(hipErrorNotSupported, hip.hipMemMapArrayAsync(list, 1, nullptr));
}

void mapping_errors(hip_api& hip) {
  const auto prop = pinned_on(0);
  hipMemGenericAllocationHandle_t handle{};
  const std::size_t chunk = 2 * MiB;
  void* base = nullptr;
  OK(hip.hipMemCreate(&handle, 2 * chunk, &prop, 0));
  OK(hip.hipMemAddressReserve(&base, 4 * chunk, chunk, nullptr, 0));
  WANT_CODE(hipErrorNotSupported, hip.hipMemMap(base, chunk, 0, handle, 0));  // less than the handle's size
  WANT_CODE(hipErrorInvalidValue, hip.hipMemMap(base, chunk, chunk, handle, 0));
  OK(hip.hipMemMap(base, 2 * chunk, 0, handle, 0));
  WANT_CODE(hipErrorInvalidValue, hip.hipMemMap(base, 2 * chunk, 0, handle, 0));
  WANT_CODE(hipErrorInvalidValue, hip.hipMemAddressFree(base, 4 * chunk));
  auto access = access_for(0);
  WANT_CODE(hipErrorInvalidValue, hip.hipMemSetAccess(base, chunk, &access, 1));
  WANT_CODE(hipErrorInvalidValue, hip.hipMemSetAccess(base, 4 * chunk, &access, 1));  // a hole at the end
  access = access_for(99);
  WANT_CODE(hipErrorInvalidValue, hip.hipMemSetAccess(base, 2 * chunk, &access, 1));
  access = access_for(0, hipMemAccessFlagsProtRead);
  OK(hip.hipMemSetAccess(base, 2 * chunk, &access, 1));
  const auto data = pattern(chunk, 1);
  WANT_CODE(hipErrorInvalidValue, hip.hipMemcpy(base, data.data(), chunk, hipMemcpyHostToDevice));
  unsigned long long flags = 0;
  const hipMemLocation host{hipMemLocationTypeHost, 0}, device{hipMemLocationTypeDevice, 0};
  OK(hip.hipMemGetAccess(&flags, &device, base));
  WANT(flags == hipMemAccessFlagsProtRead);
  WANT_CODE(hipErrorInvalidValue, hip.hipMemGetAccess(&flags, &host, base));
  access = access_for(0, hipMemAccessFlagsProtNone);
  OK(hip.hipMemSetAccess(base, 2 * chunk, &access, 1));
  WANT_CODE(hipErrorInvalidValue, hip.hipMemUnmap(base, chunk));
  WANT_CODE(hipErrorInvalidValue, hip.hipMemUnmap(at(base, chunk), chunk));
  WANT_CODE(hipErrorInvalidValue, hip.hipMemUnmap(base, 4 * chunk));
  OK(hip.hipMemUnmap(base, 2 * chunk));
  WANT_CODE(hipErrorInvalidValue, hip.hipMemUnmap(base, 2 * chunk));
  WANT_CODE(hipErrorInvalidValue, hip.hipMemGetAccess(&flags, &device, base));
  OK(hip.hipMemAddressFree(base, 4 * chunk));
  OK(hip.hipMemRelease(handle));
}

void sharing(hip_api& hip) {
  const auto prop = pinned_on(0, hipMemHandleTypePosixFileDescriptor);
  const std::size_t chunk = 2 * MiB;
  hipMemGenericAllocationHandle_t handle{}, by_value{}, by_pointer{};
  void* base = nullptr;
  int fd = -1;
  OK(hip.hipMemCreate(&handle, chunk, &prop, 0));
  OK(hip.hipMemExportToShareableHandle(&fd, handle, hipMemHandleTypePosixFileDescriptor, 0));
  WANT(fd > 0);
  void* const cast = reinterpret_cast<void*>(static_cast<std::uintptr_t>(fd));
  OK(hip.hipMemImportFromShareableHandle(&by_value, cast, hipMemHandleTypePosixFileDescriptor));
  OK(hip.hipMemImportFromShareableHandle(&by_pointer, &fd, hipMemHandleTypePosixFileDescriptor));
  OK(hip.hipMemAddressReserve(&base, 3 * chunk, 0, nullptr, 0));
  OK(hip.hipMemMap(base, chunk, 0, handle, 0));
  OK(hip.hipMemMap(at(base, chunk), chunk, 0, by_value, 0));
  OK(hip.hipMemMap(at(base, 2 * chunk), chunk, 0, by_pointer, 0));
  const auto access = access_for(0);
  OK(hip.hipMemSetAccess(base, 3 * chunk, &access, 1));
  WANT(same_memory(hip, base, at(base, chunk), chunk, 21));
  WANT(same_memory(hip, at(base, 2 * chunk), base, chunk, 22));
  OK(hip.hipMemUnmap(base, 3 * chunk));
  OK(hip.hipMemAddressFree(base, 3 * chunk));
  for (const auto each : {handle, by_value, by_pointer}) OK(hip.hipMemRelease(each));
  close(fd);
  WANT_CODE(hipErrorInvalidValue,
            hip.hipMemImportFromShareableHandle(&by_value, cast, hipMemHandleTypePosixFileDescriptor));
  int foreign = open("/dev/null", O_RDWR);
  WANT_CODE(hipErrorInvalidValue,
            hip.hipMemImportFromShareableHandle(&by_value, &foreign, hipMemHandleTypePosixFileDescriptor));
  close(foreign);
}

/// A range of a device's memory as a dma-buf, which only some kernels and devices provide.
void dma_buf(hip_api& hip) {
  void* ptr = nullptr;
  int fd = -1;
  OK(hip.hipMalloc(&ptr, 2 * MiB));
  const auto kind = hipMemRangeHandleTypeDmaBufFd;
  WANT_CODE(hipErrorInvalidValue, hip.hipMemGetHandleForAddressRange(&fd, ptr, 0, kind, 0));
  WANT_CODE(hipErrorInvalidValue, hip.hipMemGetHandleForAddressRange(nullptr, ptr, 2 * MiB, kind, 0));
  const hipError_t result = hip.hipMemGetHandleForAddressRange(&fd, ptr, 2 * MiB, kind, 0);
  WANT(result == hipSuccess || result == hipErrorNotSupported);
  WANT((result == hipSuccess) == (fd >= 0));
  if (fd >= 0) close(fd);
  OK(hip.hipFree(ptr));
}

/// One mapping on each of two devices, each for its owner alone; HIP's calls work whatever device is current.
void between_devices(hip_api& hip) {
  const std::size_t chunk = 2 * MiB;
  void *base = nullptr, *range = nullptr;
  std::size_t size = 0;
  OK(hip.hipMemAddressReserve(&base, 2 * chunk, 0, nullptr, 0));
  for (int device = 0; device < 2; ++device) {
    const auto prop = pinned_on(device);
    const auto access = access_for(device);
    hipMemGenericAllocationHandle_t handle{};
    OK(hip.hipMemCreate(&handle, chunk, &prop, 0));
    OK(hip.hipMemMap(at(base, device * chunk), chunk, 0, handle, 0));
    OK(hip.hipMemSetAccess(at(base, device * chunk), chunk, &access, 1));
    OK(hip.hipMemRelease(handle));
  }
  void *near = base, *far = at(base, chunk);
  hipPointerAttribute_t attributes{};
  OK(hip.hipPointerGetAttributes(&attributes, at(far, 8)));
  WANT(attributes.type == hipMemoryTypeDevice && attributes.device == 1);
  WANT(attributes.devicePointer == at(far, 8));
  OK(hip.hipMemGetAddressRange(&range, &size, at(far, 8)));
  WANT(range == far && size == chunk);
  WANT(same_memory(hip, far, far, chunk, 41));
  OK(hip.hipMemset(near, 0, chunk));
  OK(hip.hipMemcpyPeer(near, 0, far, 1, chunk));
  std::vector<unsigned> back(chunk / sizeof(unsigned));
  OK(hip.hipMemcpy(back.data(), near, chunk, hipMemcpyDefault));
  WANT(back == pattern(chunk, 41));
  OK(hip.hipMemset(far, 0x11, chunk));
  OK(hip.hipMemcpy(back.data(), far, chunk, hipMemcpyDefault));
  WANT(back.front() == 0x11111111 && back.back() == 0x11111111);
  const hipMemAccessDesc both[] = {access_for(0), access_for(1)};
  OK(hip.hipMemSetAccess(base, 2 * chunk, both, 2));
  WANT(same_memory(hip, far, far, chunk, 42));
  OK(hip.hipMemcpy(near, far, chunk, hipMemcpyDeviceToDevice));
  OK(hip.hipMemcpy(back.data(), near, chunk, hipMemcpyDefault));
  WANT(back == pattern(chunk, 42));
  OK(hip.hipMemUnmap(base, 2 * chunk));
  OK(hip.hipMemAddressFree(base, 2 * chunk));
}

}  // namespace smoke
