// The yardstick: the driver calls of hipplan's apply and teardown, written by hand against the same library.
//
// Nothing is kept but the handles, nothing is named, and a failure is only a number: what a careful person
// would write who never needs to know what went wrong. Built on the spot by common.py.
#include <dlfcn.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hip/hip_abi.h"

using namespace hip_abi;

namespace {

struct table {
#define HIP_CALL(name, params, args) hipError_t(*name) params;
#include "hip/hip_calls.def"
};

table hip;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

#define OK(call)                                        \
  do {                                                  \
    if (const auto result = (call)) return int(result); \
  } while (false)

}  // namespace

#define PUBLIC extern "C" __attribute__((visibility("default")))

/// Finds the functions in a library that is loaded already. 0, or -1 if it is none.
PUBLIC int plain_open(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return -1;
#define HIP_CALL(name, params, args) hip.name = reinterpret_cast<decltype(hip.name)>(dlsym(library, #name));
#include "hip/hip_calls.def"
  return 0;
}

/// `count` allocations on device 0 mapped back to back into one reservation, with access for `devices`
/// devices, and all of it freed. Returns HIP's code; times in nanoseconds.
PUBLIC int plain_mappings(int count, std::size_t size, int devices, std::int64_t* up_ns,
                          std::int64_t* down_ns) {
  std::vector<hipMemGenericAllocationHandle_t> handles(count);
  const auto started = now_ns();
  hipMemAllocationProp prop{};
  prop.type = hipMemAllocationTypePinned;
  prop.location = {hipMemLocationTypeDevice, 0};
  std::vector<hipMemAccessDesc> rights(devices);
  for (int device = 0; device < devices; ++device) {
    rights[device] = {{hipMemLocationTypeDevice, device}, hipMemAccessFlagsProtReadWrite};
  }
  for (auto& handle : handles) OK(hip.hipMemCreate(&handle, size, &prop, 0));
  void* base = nullptr;
  OK(hip.hipMemAddressReserve(&base, count * size, 0, nullptr, 0));
  for (int i = 0; i < count; ++i) {
    void* at = static_cast<char*>(base) + i * size;
    OK(hip.hipMemMap(at, size, 0, handles[i], 0));
    OK(hip.hipMemSetAccess(at, size, rights.data(), rights.size()));
  }
  const auto applied = now_ns();
  for (int device = 0; device < devices; ++device) {
    OK(hip.hipSetDevice(device));
    OK(hip.hipDeviceSynchronize());
  }
  OK(hip.hipSetDevice(0));
  for (int i = count; i-- > 0;) OK(hip.hipMemUnmap(static_cast<char*>(base) + i * size, size));
  OK(hip.hipMemAddressFree(base, count * size));
  for (int i = count; i-- > 0;) OK(hip.hipMemRelease(handles[i]));
  *down_ns = now_ns() - applied;
  *up_ns = applied - started;
  return 0;
}

/// A handle for each tensor on its device, those of a device mapped back to back into one reservation of its
/// own with access for that device, and all of it freed. Returns HIP's code; times in nanoseconds.
PUBLIC int plain_tensors(int count, const std::size_t* sizes, const int* devices, std::int64_t* up_ns,
                         std::int64_t* down_ns) {
  std::vector<hipMemGenericAllocationHandle_t> handles(count);
  std::vector<void*> at(count);
  int last = 0;
  for (int i = 0; i < count; ++i) last = devices[i] > last ? devices[i] : last;
  std::vector<std::size_t> needed(last + 1);
  for (int i = 0; i < count; ++i) needed[devices[i]] += sizes[i];
  std::vector<char*> next(last + 1);
  std::vector<void*> bases(last + 1);
  const auto started = now_ns();
  for (int i = 0; i < count; ++i) {
    hipMemAllocationProp prop{};
    prop.type = hipMemAllocationTypePinned;
    prop.location = {hipMemLocationTypeDevice, devices[i]};
    OK(hip.hipMemCreate(&handles[i], sizes[i], &prop, 0));
  }
  for (int device = 0; device <= last; ++device) {
    if (needed[device] == 0) continue;
    OK(hip.hipMemAddressReserve(&bases[device], needed[device], 0, nullptr, 0));
    next[device] = static_cast<char*>(bases[device]);
  }
  for (int i = 0; i < count; ++i) {
    const hipMemAccessDesc right{{hipMemLocationTypeDevice, devices[i]}, hipMemAccessFlagsProtReadWrite};
    at[i] = next[devices[i]];
    OK(hip.hipMemMap(at[i], sizes[i], 0, handles[i], 0));
    OK(hip.hipMemSetAccess(at[i], sizes[i], &right, 1));
    next[devices[i]] += sizes[i];
  }
  const auto applied = now_ns();
  for (int device = 0; device <= last; ++device) {
    OK(hip.hipSetDevice(device));
    OK(hip.hipDeviceSynchronize());
  }
  OK(hip.hipSetDevice(0));
  for (int i = count; i-- > 0;) OK(hip.hipMemUnmap(at[i], sizes[i]));
  for (int device = 0; device <= last; ++device) {
    if (bases[device]) OK(hip.hipMemAddressFree(bases[device], needed[device]));
  }
  for (int i = count; i-- > 0;) OK(hip.hipMemRelease(handles[i]));
  *down_ns = now_ns() - applied;
  *up_ns = applied - started;
  return 0;
}

/// `count` buffers of hipMalloc on device 0, and freed.
PUBLIC int plain_buffers(int count, std::size_t size, std::int64_t* up_ns, std::int64_t* down_ns) {
  std::vector<void*> buffers(count);
  const auto started = now_ns();
  for (auto& buffer : buffers) OK(hip.hipMalloc(&buffer, size));
  const auto applied = now_ns();
  OK(hip.hipDeviceSynchronize());
  for (int i = count; i-- > 0;) OK(hip.hipFree(buffers[i]));
  *down_ns = now_ns() - applied;
  *up_ns = applied - started;
  return 0;
}

namespace {

/// Chunks of one size on device 0, mapped back to back.
struct region {
  char* base = nullptr;
  std::size_t chunk = 0;
  std::size_t room = 0;  ///< how many chunks have addresses
  std::vector<hipMemGenericAllocationHandle_t> handles;
};

/// One chunk: made, mapped, given its rights, and read back.
int make_chunk(const region& to, std::size_t place, hipMemGenericAllocationHandle_t& handle) {
  hipMemAllocationProp prop{};
  prop.type = hipMemAllocationTypePinned;
  prop.location = {hipMemLocationTypeDevice, 0};
  const hipMemAccessDesc right{{hipMemLocationTypeDevice, 0}, hipMemAccessFlagsProtReadWrite};
  void* at = to.base + place * to.chunk;
  OK(hip.hipMemCreate(&handle, to.chunk, &prop, 0));
  OK(hip.hipMemMap(at, to.chunk, 0, handle, 0));
  OK(hip.hipMemSetAccess(at, to.chunk, &right, 1));
  void* start = nullptr;
  std::size_t size = 0;
  unsigned long long flags = 0;
  OK(hip.hipMemGetAllocationPropertiesFromHandle(&prop, handle));
  OK(hip.hipMemGetAddressRange(&start, &size, at));
  OK(hip.hipMemGetAccess(&flags, &right.location, at));
  return 0;
}

}  // namespace

/// A region of `count` chunks, with addresses for `room`; plain_close frees it.
PUBLIC int plain_region(int count, std::size_t chunk, int room, void** out) {
  auto* made = new region{nullptr, chunk, static_cast<std::size_t>(room), {}};
  *out = made;
  made->handles.reserve(made->room);
  void* base = nullptr;
  OK(hip.hipMemAddressReserve(&base, made->room * chunk, 0, nullptr, 0));
  made->base = static_cast<char*>(base);
  made->handles.resize(count);
  for (int i = 0; i < count; ++i) OK(make_chunk(*made, i, made->handles[i]));
  return 0;
}

/// One chunk more at the end, and freed again. Returns HIP's code; times in nanoseconds.
PUBLIC int plain_grow(void* of, std::int64_t* up_ns, std::int64_t* down_ns) {
  auto& here = *static_cast<region*>(of);
  const auto place = here.handles.size();
  const auto started = now_ns();
  OK(make_chunk(here, place, here.handles.emplace_back()));
  const auto grown = now_ns();
  OK(hip.hipDeviceSynchronize());
  OK(hip.hipMemUnmap(here.base + place * here.chunk, here.chunk));
  OK(hip.hipMemRelease(here.handles.back()));
  here.handles.pop_back();
  *down_ns = now_ns() - grown;
  *up_ns = grown - started;
  return 0;
}

/// Other memory for the chunk in the middle, without its bytes; the old memory is freed.
PUBLIC int plain_remap(void* of, std::int64_t* up_ns, std::int64_t* down_ns) {
  auto& here = *static_cast<region*>(of);
  const auto place = here.handles.size() / 2;
  const auto started = now_ns();
  OK(hip.hipDeviceSynchronize());
  OK(hip.hipMemUnmap(here.base + place * here.chunk, here.chunk));
  const auto old = here.handles[place];
  OK(make_chunk(here, place, here.handles[place]));
  const auto remapped = now_ns();
  OK(hip.hipMemRelease(old));
  *down_ns = now_ns() - remapped;
  *up_ns = remapped - started;
  return 0;
}

/// Takes the right to write all chunks and gives it again, read back each time.
PUBLIC int plain_seal(void* of, std::int64_t* up_ns, std::int64_t* down_ns) {
  const auto& here = *static_cast<const region*>(of);
  const auto give = [&here](hipMemAccessFlags flags) -> int {
    const hipMemAccessDesc right{{hipMemLocationTypeDevice, 0}, flags};
    for (std::size_t i = 0; i < here.handles.size(); ++i)
      OK(hip.hipMemSetAccess(here.base + i * here.chunk, here.chunk, &right, 1));
    for (std::size_t i = 0; i < here.handles.size(); ++i) {
      void* start = nullptr;
      std::size_t size = 0;
      unsigned long long now = 0;
      OK(hip.hipMemGetAddressRange(&start, &size, here.base + i * here.chunk));
      OK(hip.hipMemGetAccess(&now, &right.location, here.base + i * here.chunk));
    }
    return 0;
  };
  const auto started = now_ns();
  OK(give(hipMemAccessFlagsProtRead));
  const auto sealed = now_ns();
  OK(give(hipMemAccessFlagsProtReadWrite));
  *down_ns = now_ns() - sealed;
  *up_ns = sealed - started;
  return 0;
}

/// Frees a region.
PUBLIC int plain_close(void* of) {
  auto* gone = static_cast<region*>(of);
  OK(hip.hipDeviceSynchronize());
  for (auto i = gone->handles.size(); i-- > 0;)
    OK(hip.hipMemUnmap(gone->base + i * gone->chunk, gone->chunk));
  if (gone->base) OK(hip.hipMemAddressFree(gone->base, gone->room * gone->chunk));
  for (const auto handle : gone->handles) OK(hip.hipMemRelease(handle));
  delete gone;
  return 0;
}

/// `count` copies between two devices, one after the other, then waits. Nanoseconds for all.
PUBLIC int plain_copies(void* to, int to_device, const void* from, int from_device, std::size_t size,
                        int count, std::int64_t* ns) {
  const auto started = now_ns();
  for (int i = 0; i < count; ++i) {
    OK(hip.hipMemcpyPeerAsync(to, to_device, from, from_device, size, nullptr));
  }
  OK(hip.hipStreamSynchronize(nullptr));
  *ns = now_ns() - started;
  return 0;
}
