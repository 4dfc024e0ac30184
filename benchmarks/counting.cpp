// A library with HIP's ABI that hands every call on to another one, and adds up how many there were and how
// long they took. Built on the spot by common.py; opened as a runtime, by its path.
//
// The clock is asked twice a call, some 50 ns, half of which count as the caller's: the same for every
// caller.
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "hip/hip_abi.h"

#define PUBLIC extern "C" __attribute__((visibility("default")))

using namespace hip_abi;

namespace {

struct table {
#define HIP_CALL(name, params, args) hipError_t(*name) params;
#include "hip/hip_calls.def"
};

/// The library that COUNTED names.
table opened() {
  const char* const path = std::getenv("COUNTED");
  void* const library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (!library) {
    std::fprintf(stderr, "counting: COUNTED names no library that can be opened\n");
    std::abort();
  }
  table out{};
#define HIP_CALL(name, params, args) out.name = reinterpret_cast<decltype(out.name)>(dlsym(library, #name));
#include "hip/hip_calls.def"
  return out;
}

const table real = opened();
std::atomic<std::int64_t> calls{0};
std::atomic<std::int64_t> nanoseconds{0};

class stopwatch {
 public:
  stopwatch() : began_(std::chrono::steady_clock::now()) {}
  stopwatch(const stopwatch&) = delete;
  stopwatch& operator=(const stopwatch&) = delete;
  ~stopwatch() {
    const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - began_;
    nanoseconds.fetch_add(took.count(), std::memory_order_relaxed);
    calls.fetch_add(1, std::memory_order_relaxed);
  }

 private:
  std::chrono::steady_clock::time_point began_;
};

}  // namespace

/// The calls since the last time that this was called.
PUBLIC void counted(std::int64_t* how_many, std::int64_t* ns) {
  *how_many = calls.exchange(0);
  *ns = nanoseconds.exchange(0);
}

#define HIP_CALL(name, params, args)             \
  PUBLIC hipError_t name params {                \
    if (!real.name) return hipErrorNotSupported; \
    const stopwatch running;                     \
    return real.name args;                       \
  }
#include "hip/hip_calls.def"
