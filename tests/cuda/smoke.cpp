// Every call of libhipcuda at least once on real GPUs, with what it must answer.
//   smoke PATH-OF-LIBHIPCUDA
// Exit 0: all as expected; 1: not; 77: no GPU here, and the library said so properly.
#include "smoke.hpp"

#include <cstring>
#include <string>
#include <thread>

#include "runtimes/cuda/driver_table.hpp"

namespace smoke {
namespace {

bool no_driver(hip_api& hip) {
  int count = -1;
  const hipError_t answer = hip.hipGetDeviceCount(&count);
  if (answer != hipErrorNoDevice) return false;
  WANT(count == 0);
  WANT(std::strlen(hip.message()) > 0);
  std::printf("no device: %s\n", hip.message());
  WANT_CODE(hipErrorNoDevice, hip.hipGetLastError());
  OK(hip.hipGetLastError());
  hip.call_all_with_zeros([](const std::string& name, hipError_t code) {
    const bool tells_version = name == "hipRuntimeGetVersion" || name == "hipDriverGetVersion";
    if (name == "hipGetLastError") return;
    want_code(tells_version || name == "hipGetDeviceCount" ? hipErrorInvalidValue : hipErrorNoDevice, code,
              name.c_str(), __LINE__);
  });
  int version = -1;
  OK(hip.hipRuntimeGetVersion(&version));
  OK(hip.hipDriverGetVersion(&version));
  return true;
}

}  // namespace

void devices(hip_api& hip, int count) {
  int version = 0, driver = 0, current = -1, value = 0;
  OK(hip.hipInit(0));
  WANT_CODE(hipErrorInvalidValue, hip.hipInit(1));
  WANT_CODE(hipErrorInvalidValue, hip.hipGetLastError());
  OK(hip.hipGetLastError());
  OK(hip.hipRuntimeGetVersion(&version));
  OK(hip.hipDriverGetVersion(&driver));
  WANT(std::strlen(hip.message()) == 0);
  std::printf("HIP %d, driver %d, %d device(s)\n", version, driver, count);
  WANT_CODE(hipErrorInvalidDevice, hip.hipSetDevice(count));
  WANT_CODE(hipErrorInvalidDevice, hip.hipSetDevice(-1));
  for (int device = 0; device < count; ++device) {
    char name[256], pci[32];
    std::size_t total = 0, free = 0;
    hipUUID uuid{};
    hipDeviceProp_tR0600 prop{};
    OK(hip.hipSetDevice(device));
    OK(hip.hipGetDevice(&current));
    WANT(current == device);
    OK(hip.hipDeviceGetName(name, sizeof(name), device));
    OK(hip.hipDeviceTotalMem(&total, device));
    OK(hip.hipDeviceGetPCIBusId(pci, sizeof(pci), device));
    OK(hip.hipDeviceGetUuid(&uuid, device));
    OK(hip.hipGetDevicePropertiesR0600(&prop, device));
    WANT(prop.totalGlobalMem == total && std::memcmp(&uuid, &prop.uuid, sizeof(uuid)) == 0);
    OK(hip.hipDeviceGetAttribute(&value, hipDeviceAttributeVirtualMemoryManagementSupported, device));
    WANT(value == 1);
    WANT_CODE(hipErrorInvalidValue, hip.hipDeviceGetAttribute(&value, hipDeviceAttribute_t(77777), device));
    OK(hip.hipMemGetInfo(&free, &total));
    OK(hip.hipDeviceSynchronize());
    std::printf("device %d: %s %s %s, %zu of %zu bytes free\n", device, name, prop.gcnArchName, pci, free,
                total);
  }
  for (const unsigned each :
       {3, 4, 9, 13, 15, 16, 23, 24, 61, 63, 65, 66, 67, 68, 69, 84, 85, 87, 88, 89, 90, 91, 10011, 10016}) {
    OK(hip.hipDeviceGetAttribute(&value, static_cast<hipDeviceAttribute_t>(each), 0));
    std::printf("attribute %u = %d\n", each, value);
  }
  OK(hip.hipSetDevice(count - 1));
  std::thread([&] { OK(hip.hipGetDevice(&current)); }).join();
  WANT(current == 0);
  OK(hip.hipSetDevice(0));
}

/// The context that was current before a call is current after it, also when the call needed another.
void contexts_are_left_alone(hip_api& hip, int count) {
  const auto& cuda = hipcuda::load_driver().calls;
  hipcuda::CUcontext before = nullptr, foreign = nullptr, now = nullptr;
  WANT(cuda.cuCtxGetCurrent(&before) == 0 && before == nullptr);
  if (count < 2) return;
  WANT(cuda.cuDevicePrimaryCtxRetain(&foreign, 1) == 0);
  WANT(cuda.cuCtxPushCurrent_v2(foreign) == 0);
  void* ptr = nullptr;
  OK(hip.hipMalloc(&ptr, MiB));
  hipPointerAttribute_t attributes{};
  OK(hip.hipPointerGetAttributes(&attributes, ptr));
  WANT(attributes.device == 0);
  OK(hip.hipFree(ptr));
  WANT(cuda.cuCtxGetCurrent(&now) == 0 && now == foreign);
  WANT(cuda.cuCtxPopCurrent_v2(&now) == 0);
}

void peers(hip_api& hip, int count) {
  int can = 9, value = 0;
  std::uint32_t link = 0, hops = 0;
  OK(hip.hipDeviceCanAccessPeer(&can, 99, 99));
  WANT(can == 0);
  WANT_CODE(hipErrorInvalidDevice, hip.hipDeviceCanAccessPeer(&can, 0, 99));
  WANT_CODE(hipErrorInvalidValue, hip.hipDeviceEnablePeerAccess(0, 1));
  WANT_CODE(hipErrorInvalidDevice, hip.hipDeviceEnablePeerAccess(0, 0));
  WANT_CODE(hipErrorInvalidDevice, hip.hipDeviceDisablePeerAccess(99));
  WANT_CODE(hipErrorInvalidDevice, hip.hipDeviceGetP2PAttribute(&value, hipDevP2PAttrPerformanceRank, 0, 0));
  WANT_CODE(hipErrorInvalidValue, hip.hipExtGetLinkTypeAndHopCount(0, 0, &link, &hops));
  WANT_CODE(hipErrorInvalidDevice, hip.hipMemcpyPeer(nullptr, 0, nullptr, 99, 0));
  OK(hip.hipMemcpyPeerAsync(nullptr, 0, nullptr, 0, 0, nullptr));
  if (count < 2) return;
  OK(hip.hipDeviceCanAccessPeer(&can, 0, 1));
  WANT_CODE(hipErrorNotSupported, hip.hipExtGetLinkTypeAndHopCount(0, 1, &link, &hops));
  for (unsigned each = 0; each < 4; ++each) {
    OK(hip.hipDeviceGetP2PAttribute(&value, static_cast<hipDeviceP2PAttr>(each), 0, 1));
    std::printf("peers 0 -> 1: attribute %u = %d\n", each, value);
  }
  void *here = nullptr, *there = nullptr;
  WANT_CODE(hipErrorNotSupported, hip.hipExtMallocWithFlags(&here, MiB, 3));
  OK(hip.hipExtMallocWithFlags(&here, MiB, 1));
  OK(hip.hipFree(here));
  OK(hip.hipMalloc(&here, MiB));
  OK(hip.hipSetDevice(1));
  OK(hip.hipMalloc(&there, MiB));
  OK(hip.hipSetDevice(0));
  const auto out = pattern(MiB, 31);
  std::vector<unsigned> back(out.size());
  for (int round = 0; round < 2; ++round) {  // without peer access, then with it
    OK(hip.hipMemcpy(here, out.data(), MiB, hipMemcpyHostToDevice));
    OK(hip.hipMemcpyPeer(there, 1, here, 0, MiB));
    OK(hip.hipMemset(here, 0, MiB));
    OK(hip.hipMemcpyPeerAsync(here, 0, there, 1, MiB, nullptr));
    OK(hip.hipMemcpy(back.data(), here, MiB, hipMemcpyDeviceToHost));
    WANT(back == out);
    if (!can) break;
    if (round == 0) OK(hip.hipDeviceEnablePeerAccess(1, 0));
  }
  if (can) {
    WANT_CODE(hipErrorPeerAccessAlreadyEnabled, hip.hipDeviceEnablePeerAccess(1, 0));
    OK(hip.hipDeviceDisablePeerAccess(1));
    WANT_CODE(hipErrorPeerAccessNotEnabled, hip.hipDeviceDisablePeerAccess(1));
  }
  OK(hip.hipFree(there));  // another device's memory than the current one's
  OK(hip.hipFree(here));
}

}  // namespace smoke

int main(int argc, char** argv) {
  using namespace smoke;
  if (argc != 2) return 2;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  hip_api hip(argv[1]);
  if (no_driver(hip)) return failures ? 1 : 77;
  int count = 0;
  OK(hip.hipGetDeviceCount(&count));
  devices(hip, count);
  contexts_are_left_alone(hip, count);
  hipStream_t stream{};
  OK(hip.hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  for (int device = 0; device < count; ++device) {
    OK(hip.hipSetDevice(device));
    virtual_memory(hip, device);
  }
  OK(hip.hipSetDevice(0));
  allocation_errors(hip);
  mapping_errors(hip);
  sharing(hip);
  dma_buf(hip);
  if (count > 1) between_devices(hip);
  managed(hip, stream);
  managed_errors(hip, stream);
  pinned(hip, stream);
  registered(hip);
  events(hip, stream);
  ordinary(hip, stream);
  peers(hip, count);
  answers(hip, count);
  OK(hip.hipStreamDestroy(stream));
  failures += hip.unused();
  std::printf("%d checks, %d failures\n", checks, failures);
  return failures ? 1 : 0;
}
