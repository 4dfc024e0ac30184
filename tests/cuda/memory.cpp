// Managed, pinned, registered and ordinary memory on a real device.
#include <sys/mman.h>

#include <cstring>

#include "smoke.hpp"

namespace smoke {

void managed(hip_api& hip, hipStream_t stream) {
  const std::size_t size = 16 * MiB;
  void* ptr = nullptr;
  int value = 99, list[3] = {9, 9, 9};
  OK(hip.hipMallocManaged(&ptr, size, hipMemAttachGlobal));
  std::memset(ptr, 5, size);
  const auto ask = [&](hipMemRangeAttribute attribute) {
    OK(hip.hipMemRangeGetAttribute(&value, sizeof(value), attribute, ptr, size));
    return value;
  };
  WANT(ask(hipMemRangeAttributeLastPrefetchLocation) == hipInvalidDeviceId);
  WANT(ask(hipMemRangeAttributePreferredLocation) == hipInvalidDeviceId);
  OK(hip.hipMemAdvise(ptr, size, hipMemAdviseSetReadMostly, 99));  // the device is ignored
  WANT(ask(hipMemRangeAttributeReadMostly) == 1);
  OK(hip.hipMemAdvise(ptr, size, hipMemAdviseUnsetReadMostly, 0));
  OK(hip.hipMemAdvise(ptr, size, hipMemAdviseSetPreferredLocation, hipCpuDeviceId));
  WANT(ask(hipMemRangeAttributePreferredLocation) == hipCpuDeviceId);
  OK(hip.hipMemAdvise(ptr, size, hipMemAdviseSetPreferredLocation, 0));
  WANT(ask(hipMemRangeAttributePreferredLocation) == 0);
  OK(hip.hipMemAdvise(ptr, size, hipMemAdviseSetAccessedBy, 0));
  OK(hip.hipMemPrefetchAsync(ptr, size, 0, stream));
  OK(hip.hipStreamSynchronize(stream));
  WANT(ask(hipMemRangeAttributeLastPrefetchLocation) == 0);
  void* data[] = {&value, list};
  std::size_t sizes[] = {sizeof(value), sizeof(list)};
  hipMemRangeAttribute attributes[] = {hipMemRangeAttributeReadMostly, hipMemRangeAttributeAccessedBy};
  OK(hip.hipMemRangeGetAttributes(data, sizes, attributes, 2, ptr, size));
  WANT(value == 0 && list[0] == 0 && list[1] == -2 && list[2] == -2);
  OK(hip.hipMemAdvise(ptr, size, hipMemAdviseSetAccessedBy, hipCpuDeviceId));
  OK(hip.hipMemRangeGetAttribute(list, sizeof(list), hipMemRangeAttributeAccessedBy, ptr, size));
  WANT(list[0] == 0 && list[1] == hipCpuDeviceId && list[2] == hipInvalidDeviceId);
  OK(hip.hipMemPrefetchAsync(ptr, size, hipCpuDeviceId, nullptr));
  OK(hip.hipStreamSynchronize(nullptr));
  WANT(ask(hipMemRangeAttributeLastPrefetchLocation) == hipCpuDeviceId);
  WANT(static_cast<char*>(ptr)[size - 1] == 5);
  OK(hip.hipFree(ptr));
}

void managed_errors(hip_api& hip, hipStream_t stream) {
  const std::size_t size = MiB;
  void* ptr = nullptr;
  int value = 0;
  WANT_CODE(hipErrorInvalidValue, hip.hipMallocManaged(&ptr, 0, hipMemAttachGlobal));
  WANT_CODE(hipErrorInvalidValue, hip.hipMallocManaged(&ptr, size, 4));
  OK(hip.hipMallocManaged(&ptr, size, hipMemAttachGlobal));
  WANT_CODE(hipErrorInvalidDevice, hip.hipMemPrefetchAsync(ptr, size, 99, stream));
  WANT_CODE(hipErrorInvalidDevice, hip.hipMemAdvise(ptr, size, hipMemAdviseSetAccessedBy, 99));
  WANT_CODE(hipErrorInvalidValue, hip.hipMemAdvise(ptr, size, hipMemoryAdvise(42), 0));
  WANT_CODE(hipErrorNotSupported, hip.hipMemAdvise(ptr, size, hipMemAdviseSetCoarseGrain, 0));
  WANT_CODE(hipErrorNotSupported,
            hip.hipMemRangeGetAttribute(&value, 4, hipMemRangeAttributeCoherencyMode, ptr, 4));
  hipPointerAttribute_t facts{};
  OK(hip.hipPointerGetAttributes(&facts, ptr));
  WANT(facts.type == hipMemoryTypeManaged && facts.isManaged == 1 && facts.devicePointer == ptr);
  WANT_CODE(hipErrorInvalidValue, hip.hipStreamAttachMemAsync(nullptr, ptr, 0, hipMemAttachSingle));
  OK(hip.hipStreamAttachMemAsync(stream, ptr, 0, hipMemAttachSingle));
  OK(hip.hipStreamSynchronize(stream));
  OK(hip.hipFree(ptr));
}

void pinned(hip_api& hip, hipStream_t stream) {
  void *ptr = nullptr, *device = nullptr;
  unsigned int flags = 0;
  OK(hip.hipHostMalloc(&ptr, 0, 0));
  WANT(ptr == nullptr);
  const unsigned int contradiction = hipHostMallocCoherent | hipHostMallocNonCoherent;
  WANT_CODE(hipErrorInvalidValue, hip.hipHostMalloc(&ptr, page, contradiction));
  OK(hip.hipHostMalloc(&ptr, MiB, hipHostMallocPortable | hipHostMallocMapped | hipHostMallocCoherent));
  OK(hip.hipHostGetFlags(&flags, ptr));
  WANT((flags & 3) == (hipHostMallocPortable | hipHostMallocMapped));
  OK(hip.hipHostGetDevicePointer(&device, at(ptr, 64), 0));
  WANT(device == at(ptr, 64));
  OK(hip.hipMemsetAsync(ptr, 0x5a, MiB, stream));
  OK(hip.hipStreamSynchronize(stream));
  WANT(static_cast<unsigned char*>(ptr)[MiB - 1] == 0x5a);
  hipPointerAttribute_t facts{};
  OK(hip.hipPointerGetAttributes(&facts, ptr));
  WANT(facts.type == hipMemoryTypeHost && facts.hostPointer == ptr && !facts.isManaged);
  OK(hip.hipHostFree(ptr));
  OK(hip.hipHostFree(nullptr));
  WANT_CODE(hipErrorInvalidValue, hip.hipHostFree(ptr));
}

void registered(hip_api& hip) {
  void* device = nullptr;
  hipPointerAttribute_t facts{};
  void* own = mmap(nullptr, MiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  WANT_CODE(hipErrorInvalidValue, hip.hipHostRegister(own, MiB, 16));
  OK(hip.hipHostRegister(own, MiB, hipHostRegisterMapped));
  WANT_CODE(hipErrorHostMemoryAlreadyRegistered, hip.hipHostRegister(own, MiB, hipHostRegisterMapped));
  OK(hip.hipHostGetDevicePointer(&device, own, 0));
  OK(hip.hipMemset(device, 3, MiB));
  OK(hip.hipDeviceSynchronize());
  WANT(static_cast<char*>(own)[MiB - 1] == 3);
  OK(hip.hipPointerGetAttributes(&facts, own));
  WANT(facts.type == hipMemoryTypeHost);
  unsigned int flags = 0;
  WANT_CODE(hipErrorInvalidValue, hip.hipHostGetFlags(&flags, own));
  OK(hip.hipFree(own));
  OK(hip.hipHostRegister(own, MiB, hipHostRegisterMapped));
  OK(hip.hipHostUnregister(own));
  WANT_CODE(hipErrorHostMemoryNotRegistered, hip.hipHostUnregister(own));
  WANT_CODE(hipErrorInvalidValue, hip.hipHostUnregister(nullptr));
  OK(hip.hipPointerGetAttributes(&facts, own));
  WANT(facts.type == hipMemoryTypeUnregistered && facts.device == hipInvalidDeviceId);
  WANT_CODE(hipErrorNotFound, hip.hipMemGetAddressRange(nullptr, nullptr, own));
  munmap(own, MiB);
}

/// An event is done when the work before it in its stream is, and not before.
void events(hip_api& hip, hipStream_t stream) {
  const std::size_t size = 256 * MiB;
  void *ptr = nullptr, *host = nullptr;
  hipEvent_t event{}, timed{};
  WANT_CODE(hipErrorInvalidValue, hip.hipEventCreateWithFlags(nullptr, hipEventDisableTiming));
  WANT_CODE(hipErrorInvalidValue, hip.hipEventCreateWithFlags(&event, 0x40));
  OK(hip.hipEventCreateWithFlags(&event, hipEventDisableTiming));
  OK(hip.hipEventCreateWithFlags(&timed, 0));
  OK(hip.hipEventQuery(event));  // of an event that was never recorded
  OK(hip.hipMalloc(&ptr, size));
  OK(hip.hipHostMalloc(&host, size, 0));
  std::memset(host, 7, size);
  OK(hip.hipMemcpyAsync(ptr, host, size, hipMemcpyHostToDevice, stream));
  OK(hip.hipEventRecord(event, stream));
  WANT_CODE(hipErrorNotReady, hip.hipEventQuery(event));  // the copy takes milliseconds
  hipError_t result = hipErrorNotReady;
  while (result == hipErrorNotReady) result = hip.hipEventQuery(event);
  WANT_CODE(hipSuccess, result);
  OK(hip.hipEventRecord(timed, nullptr));
  OK(hip.hipStreamSynchronize(nullptr));
  OK(hip.hipEventQuery(timed));
  OK(hip.hipEventDestroy(event));
  OK(hip.hipEventDestroy(timed));
  OK(hip.hipHostFree(host));
  OK(hip.hipFree(ptr));
}

void ordinary(hip_api& hip, hipStream_t stream) {
  void *ptr = nullptr, *base = nullptr;
  std::size_t size = 0;
  OK(hip.hipMalloc(&ptr, 0));
  WANT(ptr == nullptr);
  WANT_CODE(hipErrorOutOfMemory, hip.hipMalloc(&ptr, std::size_t{4} << 40));
  OK(hip.hipMalloc(&ptr, 3 * MiB));
  OK(hip.hipMemGetAddressRange(&base, &size, at(ptr, MiB)));
  WANT(base == ptr && size == 3 * MiB);
  WANT(same_memory(hip, ptr, ptr, 3 * MiB, 1));
  const auto out = pattern(MiB, 5);
  std::vector<unsigned> back(out.size());
  OK(hip.hipMemcpyAsync(ptr, out.data(), MiB, hipMemcpyHostToDevice, stream));
  OK(hip.hipMemcpyAsync(back.data(), ptr, MiB, hipMemcpyDefault, stream));
  OK(hip.hipStreamSynchronize(stream));
  WANT(back == out);
  OK(hip.hipMemcpy(nullptr, nullptr, 0, hipMemcpyKind(9)));
  WANT_CODE(hipErrorInvalidMemcpyDirection, hip.hipMemcpy(ptr, out.data(), 4, hipMemcpyKind(9)));
  WANT_CODE(hipErrorInvalidValue, hip.hipMemcpy(nullptr, out.data(), 4, hipMemcpyDefault));
  OK(hip.hipHostFree(ptr));  // device memory through the other door, as HIP allows
  WANT_CODE(hipErrorInvalidValue, hip.hipFree(ptr));
  OK(hip.hipHostMalloc(&ptr, MiB, 0));
  OK(hip.hipFree(ptr));
  OK(hip.hipFree(nullptr));
  hipStream_t other{};
  WANT_CODE(hipErrorInvalidValue, hip.hipStreamCreateWithFlags(&other, 2));
}

}  // namespace smoke
