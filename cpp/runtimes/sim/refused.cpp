// The functions that the simulator lacks: each returns an error and logs its name. Also the few functions
// that do not return a hipError_t.
#include <cstddef>
#include <cstdio>
#include <mutex>
#include <set>
#include <string>

#include "extra_abi.h"
#include "guard.hpp"
#include "process.hpp"

namespace hipsim {
namespace {

// One line per function and process: a program that polls must not fill the log.
// `wrong` is what AMD's library answers to these arguments, if they are wrong.
hip_abi::hipError_t refuse(const char* name, hip_abi::hipError_t wrong = hip_abi::hipSuccess) noexcept {
  try {
    if (const auto refusal = refusal_of_all(name); refusal != hip_abi::hipSuccess) return refusal;
    if (!process::instance().has_devices()) {
      record(hip_abi::hipErrorNoDevice);
      return hip_abi::hipErrorNoDevice;
    }
    if (wrong != hip_abi::hipSuccess) {
      record(wrong);
      return wrong;
    }
    static auto& seen = *new std::set<std::string>;
    static std::mutex lock;
    const std::lock_guard guard(lock);
    if (seen.insert(name).second) {
      std::fprintf(stderr, "hipsim: %s is not simulated: hipErrorNotSupported (docs/simulator.md)\n", name);
    }
    record(hip_abi::hipErrorNotSupported);
    return hip_abi::hipErrorNotSupported;
  } catch (...) {
    return hip_abi::hipErrorNotSupported;  // without a line in the log
  }
}

// The variables of kernels that the program has registered.
struct variables {
  std::mutex lock;
  std::set<const void*> all;
  static variables& known() {
    static auto& only = *new variables;
    return only;
  }
};

hip_abi::hipError_t wrong_symbol(const void* out, const void* symbol) {
  if (!out) return hip_abi::hipErrorInvalidValue;
  auto& known = variables::known();
  const std::lock_guard guard(known.lock);
  return known.all.contains(symbol) ? hip_abi::hipSuccess : hip_abi::hipErrorInvalidSymbol;
}

}  // namespace
}  // namespace hipsim

// The caller passes arguments in registers, which a function may ignore, so all can have no parameters.
#define HIP_REFUSED(name) \
  HIPSIM_EXPORT hip_abi::hipError_t name() { return hipsim::refuse(#name); }
#define HIP_REFUSED_SYMBOL(name)                                                \
  HIPSIM_EXPORT hip_abi::hipError_t name(const void* out, const void* symbol) { \
    return hipsim::refuse(#name, hipsim::wrong_symbol(out, symbol));            \
  }
#include "refused_calls.def"

// Compiled programs register their kernels at load time. It succeeds, so that programs that never launch a
// kernel run; a launch is refused above.
#define HIPSIM_REGISTERS(name) \
  HIPSIM_EXPORT void name() {}
HIPSIM_REGISTERS(__hipRegisterFunction)
HIPSIM_REGISTERS(__hipRegisterManagedVar)
HIPSIM_REGISTERS(__hipRegisterSurface)
HIPSIM_REGISTERS(__hipRegisterTexture)
HIPSIM_REGISTERS(__hipUnregisterFatBinary)

HIPSIM_EXPORT void __hipRegisterVar(void**, const void* variable) {
  auto& known = hipsim::variables::known();
  const std::lock_guard guard(known.lock);
  known.all.insert(variable);
}

HIPSIM_EXPORT void** __hipRegisterFatBinary(const void*) {
  static void* module = nullptr;
  return &module;
}

#define HIP_REFUSED_INTERNAL(name) \
  HIPSIM_EXPORT hip_abi::hipError_t name() { return hipsim::refuse(#name); }
HIP_REFUSED_INTERNAL(__hipPushCallConfiguration)
HIP_REFUSED_INTERNAL(__hipPopCallConfiguration)

HIPSIM_EXPORT const char* hipApiName(std::uint32_t) { return "unknown"; }
HIPSIM_EXPORT const char* hipKernelNameRef(const void*) { return ""; }
HIPSIM_EXPORT const char* hipKernelNameRefByPtr(const void*, hip_abi::hipStream_t) { return ""; }
HIPSIM_EXPORT int hipGetStreamDeviceId(hip_abi::hipStream_t) {
  hipsim::refuse("hipGetStreamDeviceId");
  return -1;
}

struct hipsim_channel_desc {
  int x, y, z, w;
  unsigned int kind;
};
HIPSIM_EXPORT hipsim_channel_desc hipCreateChannelDesc(int x, int y, int z, int w, unsigned int kind) {
  return {x, y, z, w, kind};
}
