// What the smoke test stands on: HIP's calls from the library under test, each counted, and the checks.
#pragma once

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "hip/hip_abi.h"

namespace smoke {

using namespace hip_abi;

/// The calls of one library. A call that no check makes is a failure of the test: unused().
class hip_api {
 public:
  explicit hip_api(const char* path) : library_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    if (!library_) {
      std::fprintf(stderr, "%s\n", dlerror());
      std::exit(2);
    }
#define HIP_CALL(name, parameters, arguments) \
  name##_ = reinterpret_cast<hipError_t(*) parameters>(symbol(#name));
#include "hip/hip_calls.def"
    message = reinterpret_cast<const char* (*)()>(symbol("hipcuda_message"));
  }

#define HIP_CALL(name, parameters, arguments) \
  hipError_t name parameters {                \
    ++name##_calls_;                          \
    return name##_ arguments;                 \
  }
#include "hip/hip_calls.def"

  const char* (*message)() = nullptr;

  int unused() const {
    int count = 0;
#define HIP_CALL(name, parameters, arguments)          \
  if (name##_calls_ == 0) {                            \
    std::printf("FAIL  %s was never called\n", #name); \
    ++count;                                           \
  }
#include "hip/hip_calls.def"
    return count;
  }

  /// Every call with zeros for arguments: visit(name, its result).
  template <class Visit>
  void call_all_with_zeros(Visit visit) {
#define HIP_CALL(name, parameters, arguments) visit(#name, with_zeros(name##_));
#include "hip/hip_calls.def"
  }

 private:
  void* symbol(const char* name) {
    void* found = dlsym(library_, name);
    if (!found) {
      std::fprintf(stderr, "not exported: %s\n", name);
      std::exit(2);
    }
    return found;
  }
  template <class... Parameters>
  static hipError_t with_zeros(hipError_t (*call)(Parameters...)) {
    return call(Parameters{}...);
  }

  void* library_;
#define HIP_CALL(name, parameters, arguments) \
  hipError_t(*name##_) parameters = nullptr;  \
  int name##_calls_ = 0;
#include "hip/hip_calls.def"
};

inline int checks = 0;
inline int failures = 0;

inline void want(bool holds, const char* what, int line) {
  ++checks;
  if (holds) return;
  ++failures;
  std::printf("FAIL  line %d: %s\n", line, what);
}

inline void want_code(unsigned int expected, unsigned int got, const char* what, int line) {
  ++checks;
  if (expected == got) return;
  ++failures;
  std::printf("FAIL  line %d: %s gave %u, expected %u\n", line, what, got, expected);
}

}  // namespace smoke

#define WANT(condition) smoke::want((condition), #condition, __LINE__)
#define WANT_CODE(expected, call) smoke::want_code((expected), (call), #call, __LINE__)
#define OK(call) WANT_CODE(smoke::hipSuccess, call)
/// An answer worth knowing that nothing depends on.
#define NOTE(call) std::printf("note  %-88s %u\n", #call, static_cast<unsigned>(call))

namespace smoke {

inline constexpr std::size_t MiB = 1 << 20;
inline constexpr std::size_t page = 4096;

inline hipMemAllocationProp pinned_on(int device, hipMemAllocationHandleType handle = hipMemHandleTypeNone) {
  hipMemAllocationProp prop{};
  prop.type = hipMemAllocationTypePinned;
  prop.requestedHandleType = handle;
  prop.location = {hipMemLocationTypeDevice, device};
  return prop;
}

inline hipMemAccessDesc access_for(int device, hipMemAccessFlags flags = hipMemAccessFlagsProtReadWrite) {
  return {{hipMemLocationTypeDevice, device}, flags};
}

inline std::vector<unsigned> pattern(std::size_t bytes, unsigned start) {
  std::vector<unsigned> out(bytes / sizeof(unsigned));
  std::iota(out.begin(), out.end(), start);
  return out;
}

inline void* at(void* base, std::size_t offset) { return static_cast<char*>(base) + offset; }

/// Writes a pattern through one address and reads it through another.
inline bool same_memory(hip_api& hip, void* written, void* read, std::size_t bytes, unsigned start) {
  const auto out = pattern(bytes, start);
  std::vector<unsigned> back(out.size());
  OK(hip.hipMemcpy(written, out.data(), bytes, hipMemcpyHostToDevice));
  OK(hip.hipMemcpy(back.data(), read, bytes, hipMemcpyDeviceToHost));
  return back == out;
}

// The topics.
void devices(hip_api& hip, int count);
void contexts_are_left_alone(hip_api& hip, int count);
void peers(hip_api& hip, int count);
void virtual_memory(hip_api& hip, int device);
void allocation_errors(hip_api& hip);
void mapping_errors(hip_api& hip);
void sharing(hip_api& hip);
void dma_buf(hip_api& hip);
void between_devices(hip_api& hip);
void managed(hip_api& hip, hipStream_t stream);
void managed_errors(hip_api& hip, hipStream_t stream);
void pinned(hip_api& hip, hipStream_t stream);
void registered(hip_api& hip);
void events(hip_api& hip, hipStream_t stream);
void ordinary(hip_api& hip, hipStream_t stream);
void answers(hip_api& hip, int device_count);

}  // namespace smoke
