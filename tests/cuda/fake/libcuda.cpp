// A stand-in for NVIDIA's libcuda.so.1, so that libhipcuda is tested without a GPU: it logs each call
// with its context and arguments, and returns what a test sets. What a driver really does is for
// tests/cuda/smoke.cpp.
//   FAKE_CUDA_VERSION (13000), FAKE_CUDA_DEVICES (2), FAKE_CUDA_INIT (0: cuInit's answer)
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>

#include "runtimes/cuda/cuda_abi.h"

namespace {

using namespace cuda_abi;

std::mutex guard;
std::map<std::string, unsigned, std::less<>> told;
std::string calls;
thread_local std::vector<CUcontext> contexts;

int setting(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value ? std::atoi(value) : otherwise;
}

CUcontext current() { return contexts.empty() ? nullptr : contexts.back(); }

template <class T>
long long number(T value) {
  if constexpr (std::is_same_v<T, CUcontext>) {
    return static_cast<long long>(reinterpret_cast<std::uintptr_t>(value));
  } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
    return static_cast<long long>(value);
  } else if constexpr (std::is_same_v<T, CUmemLocation>) {
    return value.type * 100 + value.id;
  } else {
    return -1;  // a pointer
  }
}

/// Into every parameter of type W*.
template <class W, class... A>
void put(W value, A... arguments) {
  [[maybe_unused]] const auto one = [&](auto argument) {
    if constexpr (std::is_same_v<decltype(argument), W*>) {
      if (argument) *argument = value;
    }
  };
  (one(arguments), ...);
}

template <class... A>
void give(std::string_view name, A... arguments) {
  const long long numbers[] = {number(arguments)..., 0, 0};
  if (name == "cuDeviceGetCount") {
    put(setting("FAKE_CUDA_DEVICES", 2), arguments...);
  } else if (name == "cuDeviceGet") {
    put(static_cast<int>(numbers[1]), arguments...);
  } else if (name == "cuDevicePrimaryCtxRetain") {
    put(reinterpret_cast<CUcontext>(100 + numbers[1]), arguments...);
  } else if (name == "cuCtxGetCurrent") {
    put(current(), arguments...);
  } else if (name == "cuCtxPushCurrent_v2") {
    contexts.push_back(reinterpret_cast<CUcontext>(numbers[0]));
  } else if (name == "cuCtxPopCurrent_v2") {
    contexts.pop_back();
  } else if (name == "cuDeviceGetName" || name == "cuDeviceGetPCIBusId") {
    [[maybe_unused]] const auto write = [&](auto argument) {
      if constexpr (std::is_same_v<decltype(argument), char*>) std::strcpy(argument, "0000:A1:00.0");
    };
    (write(arguments), ...);
  } else if (name == "cuGetErrorName") {
    put<const char*>("CUDA_ERROR_OF_TOMORROW", arguments...);
  } else {
    put<int>(1, arguments...);
    put<std::size_t>(std::size_t{1} << 30, arguments...);
    put<CUdeviceptr>(0x200000, arguments...);
    put<CUuuid>({}, arguments...);
  }
}

template <class... A>
CUresult answer(const char* name, A... arguments) {
  if (std::string_view(name) ==
      "cuDevicePrimaryCtxRetain") {  // takes its time, as the real one: others come too
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const std::scoped_lock lock(guard);
  calls += std::string(name) + "@" + std::to_string(number(current()));
  ((calls += " " + std::to_string(number(arguments))), ...);
  calls += "\n";
  if (std::string_view(name) == "cuInit" && setting("FAKE_CUDA_INIT", 0)) {
    return static_cast<CUresult>(setting("FAKE_CUDA_INIT", 0));
  }
  if (const auto found = told.find(std::string_view(name)); found != told.end()) {
    return static_cast<CUresult>(found->second);
  }
  give(name, arguments...);
  return CUDA_SUCCESS;
}

struct entry {
  std::string_view name;
  int version;
  void* function;
};

const std::vector<entry>& entries() {
  static const std::vector<entry> all = [] {
    std::vector<entry> out;
#define CUDA_CALL(symbol, name, version, parameters)                                 \
  {                                                                                  \
    static constexpr char text[] = #symbol;                                          \
    const auto make = []<class... A>(CUresult (*)(A...)) {                           \
      return +[](A... arguments) -> CUresult { return answer(text, arguments...); }; \
    };                                                                               \
    CUresult(*const shape) parameters = nullptr;                                     \
    out.push_back({ #name, version, reinterpret_cast<void*>(make(shape)) });         \
  }
#include "runtimes/cuda/driver_calls.def"
    return out;
  }();
  return all;
}

}  // namespace

extern "C" {

CUresult cuDriverGetVersion(int* version) {
  *version = setting("FAKE_CUDA_VERSION", 13000);
  return *version ? CUDA_SUCCESS : CUDA_ERROR_STUB_LIBRARY;
}

/// The newest form that is no newer than asked for, as the real one.
CUresult cuGetProcAddress_v2(const char* name, void** function, int version, unsigned long long,
                             int* status) {
  const entry* best = nullptr;
  for (const entry& one : entries()) {
    const bool fits =
        one.name == name && one.version <= std::min(version, setting("FAKE_CUDA_VERSION", 13000));
    if (fits && (!best || best->version < one.version)) best = &one;
  }
  *function = best ? best->function : nullptr;
  *status = best ? 0 : 1;
  return CUDA_SUCCESS;
}

/// From now on the call gives `result`; 0: it works again.
void fake_answer(const char* call, unsigned result) {
  const std::scoped_lock lock(guard);
  told[call] = result;
  if (result == 0) told.erase(call);
}

/// The calls since the last time, a line each: name@context arguments.
const char* fake_calls() {
  static std::string out;
  const std::scoped_lock lock(guard);
  out.swap(calls);
  calls.clear();
  return out.c_str();
}
}
