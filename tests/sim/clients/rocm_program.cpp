// A ROCm user's program: HIP's own headers, linked to libamdhip64. It knows no simulator.
#include <hip/hip_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#define CHECK(call)                                                 \
  if (hipError_t code = (call); code != hipSuccess) {               \
    std::fprintf(stderr, "%s: %s\n", #call, hipGetErrorName(code)); \
    std::exit(1);                                                   \
  }

int main() {
  constexpr size_t size = 2 << 20;
  hipDeviceProp_t properties;
  CHECK(hipGetDeviceProperties(&properties, 0));

  hipMemAllocationProp prop{};
  prop.type = hipMemAllocationTypePinned;
  prop.location = {hipMemLocationTypeDevice, 0};
  hipMemGenericAllocationHandle_t handle;
  void* address = nullptr;
  CHECK(hipMemCreate(&handle, size, &prop, 0));
  CHECK(hipMemAddressReserve(&address, size, 0, nullptr, 0));
  CHECK(hipMemMap(address, size, 0, handle, 0));
  const hipMemAccessDesc access{{hipMemLocationTypeDevice, 0}, hipMemAccessFlagsProtReadWrite};
  CHECK(hipMemSetAccess(address, size, &access, 1));
  char text[] = "seen by the device", back[sizeof text];
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  CHECK(hipMemcpyAsync(address, text, sizeof text, hipMemcpyHostToDevice, stream));
  CHECK(hipMemcpyAsync(back, address, sizeof text, hipMemcpyDeviceToHost, stream));
  CHECK(hipStreamSynchronize(stream));
  CHECK(hipStreamDestroy(stream));
  CHECK(hipMemUnmap(address, size));
  CHECK(hipMemRelease(handle));
  CHECK(hipMemAddressFree(address, size));

  void* managed = nullptr;
  CHECK(hipMallocManaged(&managed, size));
  CHECK(hipMemAdvise(managed, size, hipMemAdviseSetReadMostly, 0));
  std::memset(managed, 1, size);
  CHECK(hipFree(managed));
  std::printf("%s %s %zu MiB, %s\n", properties.name, properties.gcnArchName, properties.totalGlobalMem >> 20,
              back);
  return std::strcmp(text, back) == 0 ? 42 : 1;
}
