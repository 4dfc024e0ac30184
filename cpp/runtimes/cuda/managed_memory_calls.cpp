// Managed memory: allocation, advice, prefetch, attributes of ranges.
#include <algorithm>
#include <cstdlib>
#include <span>
#include <utility>

#include "calls.hpp"
#include "pointers.hpp"

namespace hipcuda {
namespace {

/// HIP names a place by a device number or -1 for the CPU, as CUDA did before 12.2.
CUmemLocation place(int device) {
  if (device == hipCpuDeviceId) return {CU_MEM_LOCATION_TYPE_HOST, 0};
  return {CU_MEM_LOCATION_TYPE_DEVICE, device_handle(device)};
}

/// Whether advice applies to the whole range, so that HIP ignores the device.
bool ignores_device(hipMemoryAdvise advice) {
  return advice == hipMemAdviseSetReadMostly || advice == hipMemAdviseUnsetReadMostly;
}

/// Sorts into HIP's order: devices, ascending; then the CPU (-1); then -2 in the remaining places.
void put_devices_first(std::span<int> devices) {
  std::ranges::sort(devices, {}, [](int device) { return std::pair(device < 0, std::abs(device)); });
}

}  // namespace

void hipMallocManaged(void** ptr, std::size_t size, unsigned int flags) {
  require(ptr && size != 0 && (flags == hipMemAttachGlobal || flags == hipMemAttachHost));
  CUdeviceptr address = 0;
  check(driver().cuMemAllocManaged(&address, size, flags));
  *ptr = to_pointer(address);
}

void hipMemAdvise(const void* ptr, std::size_t count, hipMemoryAdvise advice, int device) {
  require(ptr && count != 0);
  if (ignores_device(advice)) device = hipCpuDeviceId;
  const CUmemLocation where = place(device);
  const CUmem_advise wanted = to_cuda(advice);
  check(driver().cuMemAdvise_v2 ? driver().cuMemAdvise_v2(to_address(ptr), count, wanted, where)
                                : driver().cuMemAdvise(to_address(ptr), count, wanted, device));
}

void hipMemPrefetchAsync(const void* ptr, std::size_t count, int device, hipStream_t stream) {
  require(ptr && count != 0);
  require_inside_allocation(ptr, count);
  const CUmemLocation where = place(device);
  check(driver().cuMemPrefetchAsync_v2
            ? driver().cuMemPrefetchAsync_v2(to_address(ptr), count, where, 0, to_cuda(stream))
            : driver().cuMemPrefetchAsync(to_address(ptr), count, device, to_cuda(stream)));
}

void hipMemRangeGetAttribute(void* data, std::size_t dataSize, hipMemRangeAttribute attribute,
                             const void* ptr, std::size_t count) {
  require(data && dataSize != 0 && ptr && count != 0);
  const bool is_list = attribute == hipMemRangeAttributeAccessedBy;
  require(is_list ? dataSize % sizeof(int) == 0 : dataSize == sizeof(int));
  const CUmem_range_attribute asked = to_cuda(attribute);
  // CUDA's values are HIP's: 0 or 1, a device's number, -1 for the CPU, -2 for none or different ones.
  check(driver().cuMemRangeGetAttribute(data, dataSize, asked, to_address(ptr), count));
  if (is_list) put_devices_first({static_cast<int*>(data), dataSize / sizeof(int)});
}

void hipMemRangeGetAttributes(void** data, std::size_t* dataSizes, hipMemRangeAttribute* attributes,
                              std::size_t numAttributes, const void* ptr, std::size_t count) {
  require(data && dataSizes && attributes && numAttributes != 0 && ptr && count != 0);
  for (std::size_t i = 0; i < numAttributes; ++i) {
    hipMemRangeGetAttribute(data[i], dataSizes[i], attributes[i], ptr, count);
  }
}

void hipStreamAttachMemAsync(hipStream_t stream, void* ptr, std::size_t length, unsigned int flags) {
  require(ptr && (flags == hipMemAttachGlobal || flags == hipMemAttachHost || flags == hipMemAttachSingle));
  require(flags != hipMemAttachSingle || stream);
  const pointer_facts facts = ask_about(ptr);
  if (facts.type == CU_MEMORYTYPE_DEVICE && !facts.is_managed) return;  // in HIP this succeeds without effect
  check(driver().cuStreamAttachMemAsync(to_cuda(stream), to_address(ptr), length, flags));
}

}  // namespace hipcuda
