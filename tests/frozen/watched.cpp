// The simulator, and beside it a file of what calls are given by pointer, which a trace does not show.
//
// Built by watching.py and linked against libhipsim.so, which has all the other calls.
#include <dlfcn.h>

#include <cstddef>
#include <cstdio>

#include "hip/hip_abi.h"

using namespace hip_abi;

namespace {

std::FILE* file = nullptr;

template <class Call>
Call next(const char* name) {
  return reinterpret_cast<Call>(dlsym(RTLD_NEXT, name));
}

void write(const hipMemLocation& location) { std::fprintf(file, "%d:%d", int(location.type), location.id); }

void write(const hipMemAllocationProp& prop) {
  std::fprintf(file, "type %d on ", int(prop.type));
  write(prop.location);
  std::fprintf(file, " shared %d rdma %d usage %d\n", int(prop.requestedHandleType),
               int(prop.allocFlags.gpuDirectRDMACapable), int(prop.allocFlags.usage));
}

}  // namespace

#define PUBLIC extern "C" __attribute__((visibility("default")))

/// Appends to a file; an empty path stops.
PUBLIC void watched_to(const char* path) {
  if (file) std::fclose(file);
  file = *path ? std::fopen(path, "ae") : nullptr;
}

PUBLIC hipError_t hipMemCreate(hipMemGenericAllocationHandle_t* handle, std::size_t size,
                               const hipMemAllocationProp* prop, unsigned long long flags) {
  static const auto call = next<decltype(&hipMemCreate)>("hipMemCreate");
  if (file) write(*prop);
  return call(handle, size, prop, flags);
}

PUBLIC hipError_t hipMemGetAllocationGranularity(std::size_t* granularity, const hipMemAllocationProp* prop,
                                                 hipMemAllocationGranularity_flags option) {
  static const auto call = next<decltype(&hipMemGetAllocationGranularity)>("hipMemGetAllocationGranularity");
  if (file) write(*prop);
  return call(granularity, prop, option);
}

PUBLIC hipError_t hipMemSetAccess(void* ptr, std::size_t size, const hipMemAccessDesc* desc,
                                  std::size_t count) {
  static const auto call = next<decltype(&hipMemSetAccess)>("hipMemSetAccess");
  for (std::size_t i = 0; file && i < count; ++i) {
    write(desc[i].location);
    std::fprintf(file, "=%d%s", int(desc[i].flags), i + 1 < count ? " " : "\n");
  }
  return call(ptr, size, desc, count);
}

PUBLIC hipError_t hipMemGetAccess(unsigned long long* flags, const hipMemLocation* location, void* ptr) {
  static const auto call = next<decltype(&hipMemGetAccess)>("hipMemGetAccess");
  if (file) {
    write(*location);
    std::fprintf(file, "\n");
  }
  return call(flags, location, ptr);
}
