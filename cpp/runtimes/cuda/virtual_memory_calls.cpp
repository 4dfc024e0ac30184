// Virtual memory management: addresses, allocations, mappings, access, sharing.
#include <fcntl.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "calls.hpp"
#include "pointers.hpp"

namespace hipcuda {
namespace {

bool is_access(hipMemAccessFlags flags) {
  return flags == hipMemAccessFlagsProtNone || flags == hipMemAccessFlagsProtRead ||
         flags == hipMemAccessFlagsProtReadWrite;
}

/// Throws InvalidValue for an invalid device, as HIP does in the calls that use this; CUDA returns
/// InvalidDevice.
void require_location(const hipMemLocation& location) {
  require(location.type != hipMemLocationTypeInvalid);
  require(location.type != hipMemLocationTypeDevice || is_device(location.id));
}

/// CUDA makes memory of the host only on a NUMA node: HIP's `host` is the one nearest to the device whose
/// number HIP wants in the location.
CUmemLocation location_of(const hipMemLocation& location) {
  if (location.type != hipMemLocationTypeHost) return to_cuda(location);
  int node = -1;
  const auto result = driver().cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID,
                                                    device_handle(location.id, hipErrorInvalidDevice));
  return {CU_MEM_LOCATION_TYPE_HOST_NUMA, result == CUDA_SUCCESS ? std::max(node, 0) : 0};
}

CUmemAllocationProp properties_for(const hipMemAllocationProp& prop) {
  CUmemAllocationProp out = to_cuda(prop);
  out.location = location_of(prop.location);
  return out;
}

/// Where the memory behind an address is.
CUmemLocation memory_location(void* address) {
  CUmemGenericAllocationHandle handle = 0;
  check(driver().cuMemRetainAllocationHandle(&handle, address));
  CUmemAllocationProp found{};
  const auto result = driver().cuMemGetAllocationPropertiesFromHandle(&found, handle);
  check(driver().cuMemRelease(handle));
  check(result);
  return found.location;
}

bool is_host(const hipMemAccessDesc& desc) { return desc.location.type == hipMemLocationTypeHost; }

/// Rights in CUDA's terms: it gives the host rights by the node that the memory is on.
std::vector<CUmemAccessDesc> rights_with_host(void* address, std::span<const hipMemAccessDesc> given) {
  const auto memory = memory_location(address);
  std::vector<CUmemAccessDesc> out(to_cuda(given.data()), to_cuda(given.data()) + given.size());
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (!is_host(given[i])) continue;
    const bool on_node = memory.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
    out[i].location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, on_node ? memory.id : 0};
  }
  return out;
}

/// The descriptor in hipMemImportFromShareableHandle's osHandle: a pointer to it before HIP 7, the descriptor
/// itself since. Addresses are larger than any descriptor.
int descriptor_of(void* os_handle) {
  constexpr std::uintptr_t descriptor_limit = 1'000'000;
  const auto number = reinterpret_cast<std::uintptr_t>(os_handle);
  return number < descriptor_limit ? static_cast<int>(number) : *static_cast<const int*>(os_handle);
}

}  // namespace

void hipMemAddressReserve(void** ptr, std::size_t size, std::size_t alignment, void* addr,
                          unsigned long long flags) {
  require(ptr && size != 0 && flags == 0);
  CUdeviceptr base = 0;
  *ptr = nullptr;
  CUresult result = driver().cuMemAddressReserve(&base, size, alignment, to_address(addr), flags);
  if (result != CUDA_SUCCESS && addr) {  // in HIP the address is only a hint
    result = driver().cuMemAddressReserve(&base, size, alignment, 0, flags);
  }
  check(result);
  *ptr = to_pointer(base);
}

void hipMemAddressFree(void* ptr, std::size_t size) {
  require(ptr && size != 0);
  check(driver().cuMemAddressFree(to_address(ptr), size));
}

void hipMemCreate(hipMemGenericAllocationHandle_t* handle, std::size_t size, const hipMemAllocationProp* prop,
                  unsigned long long flags) {
  require(handle && size != 0 && prop && flags == 0);
  require(prop->location.type != hipMemLocationTypeDevice || is_device(prop->location.id),
          hipErrorInvalidDevice);
  const CUmemAllocationProp wanted = properties_for(*prop);
  CUmemGenericAllocationHandle created = 0;
  check(driver().cuMemCreate(&created, size, &wanted, flags));
  *handle = to_hip(created);
}

void hipMemRelease(hipMemGenericAllocationHandle_t handle) {
  require(handle);
  check(driver().cuMemRelease(to_cuda(handle)));
}

void hipMemMap(void* ptr, std::size_t size, std::size_t offset, hipMemGenericAllocationHandle_t handle,
               unsigned long long flags) {
  require(ptr && size != 0 && offset == 0 && handle && flags == 0);
  check(driver().cuMemMap(to_address(ptr), size, offset, to_cuda(handle), flags));
}

void hipMemUnmap(void* ptr, std::size_t size) {
  require(ptr && size != 0);
  require_whole_pieces(ptr, size);
  check(driver().cuMemUnmap(to_address(ptr), size));
}

void hipMemSetAccess(void* ptr, std::size_t size, const hipMemAccessDesc* desc, std::size_t count) {
  require(ptr && size != 0 && desc && count != 0);
  for (const hipMemAccessDesc& each : std::span(desc, count)) {
    require(is_access(each.flags));
    require_location(each.location);
  }
  require_whole_pieces(ptr, size);
  const std::span rights(desc, count);
  if (std::ranges::any_of(rights, is_host)) {
    const auto all = rights_with_host(ptr, rights);
    check(driver().cuMemSetAccess(to_address(ptr), size, all.data(), all.size()));
    return;
  }
  check(driver().cuMemSetAccess(to_address(ptr), size, to_cuda(desc), count));
}

void hipMemGetAccess(unsigned long long* flags, const hipMemLocation* location, void* ptr) {
  require(flags && location && ptr);
  require(location->type == hipMemLocationTypeDevice);  // no release of HIP reports the host's access
  require_location(*location);
  const CUmemLocation asked = to_cuda(*location);
  check(driver().cuMemGetAccess(flags, &asked, to_address(ptr)));
}

void hipMemGetAllocationGranularity(std::size_t* granularity, const hipMemAllocationProp* prop,
                                    hipMemAllocationGranularity_flags option) {
  require(granularity && prop);
  require(option == hipMemAllocationGranularityMinimum || option == hipMemAllocationGranularityRecommended);
  require_location(prop->location);
  const CUmemAllocationProp asked = properties_for(*prop);
  check(driver().cuMemGetAllocationGranularity(granularity, &asked,
                                               static_cast<CUmemAllocationGranularity_flags>(option)));
}

void hipMemGetAllocationPropertiesFromHandle(hipMemAllocationProp* prop,
                                             hipMemGenericAllocationHandle_t handle) {
  require(prop && handle);
  CUmemAllocationProp found{};
  check(driver().cuMemGetAllocationPropertiesFromHandle(&found, to_cuda(handle)));
  *prop = to_hip(found);
}

void hipMemExportToShareableHandle(void* shareableHandle, hipMemGenericAllocationHandle_t handle,
                                   hipMemAllocationHandleType handleType, unsigned long long flags) {
  require(shareableHandle && handle && flags == 0);
  require(handleType == hipMemHandleTypePosixFileDescriptor);  // the only type that hipMemCreate accepts
  check(driver().cuMemExportToShareableHandle(shareableHandle, to_cuda(handle),
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, flags));
}

void hipMemImportFromShareableHandle(hipMemGenericAllocationHandle_t* handle, void* osHandle,
                                     hipMemAllocationHandleType shHandleType) {
  require(handle && osHandle);
  require(shHandleType == hipMemHandleTypePosixFileDescriptor, hipErrorNotSupported);
  const int descriptor = descriptor_of(osHandle);
  require(fcntl(descriptor, F_GETFD) != -1);
  CUmemGenericAllocationHandle imported = 0;
  void* const by_value = reinterpret_cast<void*>(static_cast<std::uintptr_t>(descriptor));
  const CUresult result =
      driver().cuMemImportFromShareableHandle(&imported, by_value, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  require(result != CUDA_ERROR_UNKNOWN);  // CUDA's result for a descriptor of something else
  check(result);
  *handle = to_hip(imported);
}

void hipMemRetainAllocationHandle(hipMemGenericAllocationHandle_t* handle, void* addr) {
  require(handle && addr);
  CUmemGenericAllocationHandle retained = 0;
  check(driver().cuMemRetainAllocationHandle(&retained, addr));
  *handle = to_hip(retained);
}

void hipMemMapArrayAsync(hipArrayMapInfo* mapInfoList, unsigned int count, hipStream_t) {
  require(mapInfoList && count != 0);
  fail(hipErrorNotSupported);  // as every HIP runtime on AMD's hardware
}

}  // namespace hipcuda
