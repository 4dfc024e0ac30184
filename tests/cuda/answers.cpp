// What the driver answers where nothing depends on it, and what the layer over it costs. Printed, not
// checked: the first place to look when a new driver or device behaves in another way.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>

#include "runtimes/cuda/driver_table.hpp"
#include "smoke.hpp"

namespace smoke {
namespace {

constexpr int count = 512;  // of chunks, where time is taken
constexpr std::size_t chunk = 2 * MiB;

void describe(hip_api& hip, const char* what, void* ptr) {
  hipPointerAttribute_t a{};
  void* base = nullptr;
  std::size_t size = 0;
  const unsigned told = hip.hipPointerGetAttributes(&a, ptr);
  const unsigned ranged = hip.hipMemGetAddressRange(&base, &size, ptr);
  const auto compared = [&](void* other) { return other == ptr ? "=ptr" : other ? "=other" : "=0"; };
  std::printf(
      "note  %-24s attributes %u: type %u device %d devptr%s hostptr%s flags %u;"
      " range %u: base %+td size %zu\n",
      what, told, a.type, a.device, compared(a.devicePointer), compared(a.hostPointer), a.allocationFlags,
      ranged, ranged ? 0 : static_cast<char*>(base) - static_cast<char*>(ptr), size);
  const auto& cuda = hipcuda::load_driver().calls;
  unsigned mapped = 77;
  hipcuda::CUpointer_attribute asked[] = {hipcuda::CU_POINTER_ATTRIBUTE_MAPPED};
  void* into[] = {&mapped};
  const unsigned code = cuda.cuPointerGetAttributes(1, asked, into, reinterpret_cast<std::uintptr_t>(ptr));
  std::printf("note  %-28s mapped attribute: %u, value %u\n", what, code, mapped);
}

void pointers(hip_api& hip) {
  void *ptr = nullptr, *own = mmap(nullptr, MiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  unsigned flags = 0;
  OK(hip.hipMalloc(&ptr, 3 * MiB));
  describe(hip, "hipMalloc, inside", at(ptr, MiB));
  hipMemGenericAllocationHandle_t handle{};
  NOTE(hip.hipMemRetainAllocationHandle(&handle, ptr));
  NOTE(hip.hipFree(at(ptr, MiB)));
  NOTE(hip.hipMemPrefetchAsync(ptr, MiB, 0, nullptr));
  NOTE(hip.hipMemAdvise(ptr, MiB, hipMemAdviseSetReadMostly, 0));
  OK(hip.hipFree(ptr));
  describe(hip, "hipMalloc, freed", ptr);
  OK(hip.hipHostMalloc(&ptr, MiB, 0));
  describe(hip, "hipHostMalloc 0, inside", at(ptr, 64));
  NOTE(hip.hipHostGetFlags(&flags, ptr));
  std::printf("note  flags of hipHostMalloc(0): %u\n", flags);
  NOTE(hip.hipHostUnregister(ptr));
  OK(hip.hipHostFree(ptr));
  OK(hip.hipHostMalloc(&ptr, MiB, hipHostMallocWriteCombined));
  NOTE(hip.hipHostGetFlags(&flags, ptr));
  std::printf("note  flags of hipHostMalloc(write-combined): %u\n", flags);
  OK(hip.hipHostFree(ptr));
  describe(hip, "unknown host memory", own);
  OK(hip.hipHostRegister(at(own, 100), 5000, 0));  // no page boundary
  describe(hip, "registered, start", at(own, 100));
  describe(hip, "registered, inside", at(own, 200));
  NOTE(hip.hipHostGetFlags(&flags, at(own, 100)));
  std::printf("note  flags of registered memory: %u\n", flags);
  NOTE(hip.hipHostFree(at(own, 100)));
  NOTE(hip.hipHostUnregister(at(own, 200)));
  NOTE(hip.hipHostUnregister(at(own, 100)));
  munmap(own, MiB);
  OK(hip.hipMallocManaged(&ptr, MiB, hipMemAttachHost));
  describe(hip, "managed, inside", at(ptr, 64));
  NOTE(hip.hipHostGetFlags(&flags, ptr));
  NOTE(hip.hipMemAdvise(ptr, 2 * MiB, hipMemAdviseSetReadMostly, 0));
  NOTE(hip.hipMemAdvise(at(ptr, 100), 5000, hipMemAdviseSetReadMostly, 0));
  NOTE(hip.hipMemPrefetchAsync(ptr, 3 * MiB, 0, nullptr));
  int value = 0;
  NOTE(hip.hipMemRangeGetAttribute(&value, 4, hipMemRangeAttributeReadMostly, ptr, 2 * MiB));
  OK(hip.hipFree(ptr));
}

void mappings(hip_api& hip, int owner) {
  hipMemAllocationProp prop = pinned_on(owner);
  hipMemGenericAllocationHandle_t handle{}, other{};
  void *base = nullptr, *odd = nullptr;
  NOTE(hip.hipMemAddressReserve(&odd, page, 0, nullptr, 0));
  if (odd) NOTE(hip.hipMemAddressFree(odd, page));
  NOTE(hip.hipMemAddressReserve(&odd, chunk, 3, nullptr, 0));
  OK(hip.hipMemAddressReserve(&base, 4 * chunk, 64 * chunk, reinterpret_cast<void*>(0x7e0000000000), 0));
  std::printf("note  asked for 0x7e0000000000 aligned to 128 MiB, got %p\n", base);
  NOTE(hip.hipMemAddressReserve(&odd, chunk, 0, base, 0));
  if (odd) std::printf("note  a taken address gives another: %s\n", odd == base ? "no" : "yes");
  if (odd) NOTE(hip.hipMemAddressFree(odd, chunk));
  describe(hip, "reserved, not mapped", base);
  NOTE(hip.hipMemRetainAllocationHandle(&other, base));
  NOTE(hip.hipMemUnmap(base, chunk));
  NOTE(hip.hipMemAddressFree(base, chunk));
  NOTE(hip.hipMemAddressFree(at(base, chunk), chunk));
  OK(hip.hipMemCreate(&handle, chunk, &prop, 0));
  int fd = -1;
  NOTE(hip.hipMemExportToShareableHandle(&fd, handle, hipMemHandleTypePosixFileDescriptor, 0));
  OK(hip.hipMemMap(base, chunk, 0, handle, 0));
  describe(hip, "mapped, no access", base);
  NOTE(hip.hipMemUnmap(base, chunk / 2));
  const auto access = access_for(owner);
  const hipMemAccessDesc host{{hipMemLocationTypeHost, 0}, hipMemAccessFlagsProtReadWrite};
  OK(hip.hipMemSetAccess(base, chunk, &access, 1));
  describe(hip, "mapped on the last device", at(base, 64));
  NOTE(hip.hipDeviceSynchronize());
  NOTE(hip.hipMemSetAccess(base, chunk, &host, 1));
  NOTE(hip.hipFree(base));
  OK(hip.hipMemUnmap(base, chunk));
  NOTE(hip.hipMemUnmap(base, chunk));
  OK(hip.hipMemRelease(handle));
  OK(hip.hipMemAddressFree(base, 4 * chunk));
}

void host_location(hip_api& hip) {
  auto prop = pinned_on(0);
  prop.location = {hipMemLocationTypeHost, 0};
  const hipMemAccessDesc host{prop.location, hipMemAccessFlagsProtReadWrite};
  std::size_t granularity = 0;
  hipMemGenericAllocationHandle_t handle{};
  NOTE(hip.hipMemGetAllocationGranularity(&granularity, &prop, hipMemAllocationGranularityMinimum));
  if (hip.hipMemCreate(&handle, chunk, &prop, 0) != hipSuccess) return;
  void* base = nullptr;
  OK(hip.hipMemAddressReserve(&base, chunk, 0, nullptr, 0));
  OK(hip.hipMemMap(base, chunk, 0, handle, 0));
  NOTE(hip.hipMemSetAccess(base, chunk, &host, 1));
  describe(hip, "mapped host location", base);
  hipMemAllocationProp found{};
  NOTE(hip.hipMemGetAllocationPropertiesFromHandle(&found, handle));
  std::printf("note  host location: granularity %zu, read back as type %u id %d\n", granularity,
              found.location.type, found.location.id);
  OK(hip.hipMemUnmap(base, chunk));
  OK(hip.hipMemRelease(handle));
  OK(hip.hipMemAddressFree(base, chunk));
}

/// The driver's own answers about holes, which the library does not pass on.
void holes(hip_api& hip) {
  const auto& cuda = hipcuda::load_driver().calls;
  const auto prop = pinned_on(0);
  const auto access = access_for(0);
  const auto* desc = reinterpret_cast<const hipcuda::CUmemAccessDesc*>(&access);
  void* base = nullptr;
  OK(hip.hipMemAddressReserve(&base, 5 * chunk, 0, nullptr, 0));
  const auto address = reinterpret_cast<std::uintptr_t>(base);
  for (const int slot : {1, 3}) {  // hole, piece, hole, piece, hole
    hipMemGenericAllocationHandle_t handle{};
    OK(hip.hipMemCreate(&handle, chunk, &prop, 0));
    OK(hip.hipMemMap(at(base, slot * chunk), chunk, 0, handle, 0));
    OK(hip.hipMemRelease(handle));
  }
  NOTE(cuda.cuMemSetAccess(address + chunk, 3 * chunk, desc, 1));
  NOTE(cuda.cuMemSetAccess(address + 3 * chunk, 2 * chunk, desc, 1));
  NOTE(cuda.cuMemSetAccess(address, 2 * chunk, desc, 1));
  NOTE(cuda.cuMemSetAccess(address, chunk, desc, 1));
  NOTE(cuda.cuMemUnmap(address + chunk, 3 * chunk));
  NOTE(cuda.cuMemUnmap(address, 5 * chunk));
  OK(hip.hipMemAddressFree(base, 5 * chunk));
}

/// The current device is 0, stream and memory are the last device's.
void foreign_stream(hip_api& hip, int owner) {
  void *ptr = nullptr, *managed = nullptr;
  hipStream_t stream{};
  std::vector<char> data(MiB);
  OK(hip.hipSetDevice(owner));
  OK(hip.hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  OK(hip.hipMalloc(&ptr, MiB));
  OK(hip.hipSetDevice(0));
  OK(hip.hipMallocManaged(&managed, MiB, hipMemAttachGlobal));
  const auto& cuda = hipcuda::load_driver().calls;
  hipcuda::CUcontext context = nullptr;
  OK(cuda.cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuda.cuCtxPushCurrent_v2(context));
  const auto address = reinterpret_cast<std::uintptr_t>(ptr);
  NOTE(cuda.cuMemsetD8Async(address, 1, MiB, reinterpret_cast<hipcuda::CUstream>(stream)));
  NOTE(cuda.cuMemsetD8_v2(address, 1, MiB));
  OK(cuda.cuCtxPopCurrent_v2(&context));
  NOTE(hip.hipMemsetAsync(ptr, 1, MiB, stream));
  NOTE(hip.hipMemcpyAsync(data.data(), ptr, MiB, hipMemcpyDefault, stream));
  NOTE(hip.hipMemPrefetchAsync(managed, MiB, owner, stream));
  NOTE(hip.hipStreamAttachMemAsync(stream, managed, 0, hipMemAttachGlobal));
  NOTE(hip.hipStreamSynchronize(stream));
  std::printf("note  filled through it: %s\n", data[MiB - 1] == 1 ? "yes" : "no");
  NOTE(hip.hipStreamDestroy(stream));
  NOTE(hip.hipStreamDestroy(nullptr));
  OK(hip.hipFree(managed));
  OK(hip.hipFree(ptr));
}

using clock = std::chrono::steady_clock;

template <class Body>
double microseconds(Body body) {
  std::vector<double> times;
  for (int round = 0; round < 7; ++round) {
    const auto start = clock::now();
    body();
    times.push_back(std::chrono::duration<double, std::micro>(clock::now() - start).count());
  }
  std::ranges::nth_element(times, times.begin() + 3);
  return times[3];
}

void up_and_down_through_hip(hip_api& hip, void* base) {
  const auto prop = pinned_on(0);
  const auto access = access_for(0);
  std::vector<hipMemGenericAllocationHandle_t> handles(count);
  for (int i = 0; i < count; ++i) {
    OK(hip.hipMemCreate(&handles[i], chunk, &prop, 0));
    OK(hip.hipMemMap(at(base, i * chunk), chunk, 0, handles[i], 0));
    OK(hip.hipMemSetAccess(at(base, i * chunk), chunk, &access, 1));
  }
  for (int i = 0; i < count; ++i) {
    OK(hip.hipMemUnmap(at(base, i * chunk), chunk));
    OK(hip.hipMemRelease(handles[i]));
  }
}

void up_and_down_through_cuda(void* base) {
  using namespace hipcuda;
  const auto& cuda = load_driver().calls;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  const CUmemAccessDesc access{prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  std::vector<CUmemGenericAllocationHandle> handles(count);
  const auto address = reinterpret_cast<std::uintptr_t>(base);
  for (int i = 0; i < count; ++i) {
    OK(cuda.cuMemCreate(&handles[i], chunk, &prop, 0));
    OK(cuda.cuMemMap(address + i * chunk, chunk, 0, handles[i], 0));
    OK(cuda.cuMemSetAccess(address + i * chunk, chunk, &access, 1));
  }
  for (int i = 0; i < count; ++i) {
    OK(cuda.cuMemUnmap(address + i * chunk, chunk));
    OK(cuda.cuMemRelease(handles[i]));
  }
}

/// The same calls straight to the driver and through the layer, in one run. The ratios scatter by a few
/// percent from run to run: the driver's own times do.
void costs(hip_api& hip) {
  const auto& cuda = hipcuda::load_driver().calls;
  void* base = nullptr;
  OK(hip.hipMemAddressReserve(&base, count * chunk, 0, nullptr, 0));
  up_and_down_through_hip(hip, base);
  const auto through_hip = [&] { up_and_down_through_hip(hip, base); };
  hipPointerAttribute_t attributes{};
  const auto ask = [&] {
    for (int i = 0; i < 1000; ++i) (void)hip.hipPointerGetAttributes(&attributes, base);
  };
  hipcuda::CUcontext context = nullptr;
  OK(cuda.cuDevicePrimaryCtxRetain(&context, 0));
  const double pushed = microseconds(through_hip), asked_pushed = microseconds(ask) / 1000;
  OK(cuda.cuCtxPushCurrent_v2(context));
  const double direct = microseconds([&] { up_and_down_through_cuda(base); });
  const double current = microseconds(through_hip), asked = microseconds(ask) / 1000;
  OK(cuda.cuCtxPopCurrent_v2(&context));
  std::printf(
      "cost  %d x (create, map, access, unmap, release) of 2 MiB: driver %.0f us, through HIP %.0f us"
      " (%.3f), with no current context %.0f us (%.3f)\n",
      count, direct, current, current / direct, pushed, pushed / direct);
  std::printf("cost  one hipPointerGetAttributes %.3f us, with no current context %.3f us\n", asked,
              asked_pushed);
  OK(hip.hipMemAddressFree(base, count * chunk));
}

}  // namespace

void answers(hip_api& hip, int device_count) {
  pointers(hip);
  costs(hip);
  mappings(hip, device_count - 1);
  host_location(hip);
  holes(hip);
  foreign_stream(hip, device_count - 1);
}

}  // namespace smoke
