// The exported functions: guards only, generated from the lists of calls.
#include <cerrno>
#include <new>
#include <string_view>
#include <system_error>
#include <type_traits>

#include "calls.hpp"
#include "guard.hpp"
#include "host_access.hpp"
#include "process.hpp"

namespace hipsim {
namespace {

using hip_abi::hipError_t;

// These return the thread's recorded error, so they must not change it.
consteval bool keeps_last_error(std::string_view name) {
  return name == "hipGetLastError" || name == "hipPeekAtLastError" || name == "hipExtGetLastError";
}

// These work without a device; every other call returns NoDevice before it checks its arguments.
consteval bool needs_no_device(std::string_view name) {
  return keeps_last_error(name) || name == "hipGetDeviceCount" || name == "hipSetDevice" ||
         name == "hipRuntimeGetVersion" || name == "hipDriverGetVersion" || name == "hipDrvGetErrorName" ||
         name == "hipDrvGetErrorString" || name == "hipGetProcAddress";
}

// What a trace shows of an argument: of a struct passed by value its most useful field.
template <class Value>
auto traceable(Value value) {
  return value;
}
inline int traceable(hip_abi::hipMemLocation location) { return location.id; }
inline int traceable(const hip_abi::hipIpcHandle&) { return 0; }

// Whether an argument can be used: a pointer to a struct or to an output must be readable. Pointers to void
// or to incomplete types are handles and memory, which each call checks itself.
template <class Value>
bool is_usable(const Value& value) {
  if constexpr (std::is_pointer_v<Value>) {
    using behind = std::remove_pointer_t<Value>;
    if constexpr (std::is_function_v<behind> || std::is_void_v<behind>) {
      return true;
    } else if constexpr (requires { sizeof(behind); }) {
      return value == nullptr || is_readable(reinterpret_cast<std::uintptr_t>(value), sizeof(behind));
    }
  }
  return true;
}

hipError_t code_of_exception(const char* function) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return hip_abi::hipErrorOutOfMemory;
  } catch (const bad_host_pointer& error) {
    note(function, error.what());
    return hip_abi::hipErrorInvalidValue;
  } catch (const std::system_error& error) {
    note(function, error.what());
    const int why = error.code().value();
    const bool no_file = why == EMFILE || why == ENFILE || why == EFBIG;
    return no_file ? hip_abi::hipErrorOutOfMemory : hip_abi::hipErrorUnknown;
  } catch (const std::exception& error) {
    note(function, error.what());
  } catch (...) {
    note(function, "an exception of unknown type");
  }
  return hip_abi::hipErrorUnknown;
}

template <bool KeepsLastError, bool NeedsNoDevice, class Function, class... Arguments>
hipError_t guard(const char* name, const char* names, Function function, Arguments... arguments) noexcept {
  hipError_t code = hip_abi::hipErrorUnknown;
  try {
    auto& here = process::instance();
    if (const auto refusal = refusal_of_all(name); refusal != hip_abi::hipSuccess) return refusal;
    const auto call = [&](auto...) -> hipError_t {
      try {
        if (!NeedsNoDevice && !here.has_devices()) return hip_abi::hipErrorNoDevice;
        if (!(is_usable(arguments) && ...)) throw bad_host_pointer("an argument is not a valid address");
        return function(arguments...);
      } catch (...) {
        return code_of_exception(name);
      }
    };
    code = here.interceptor.run(name, names, call, traceable(arguments)...);
    if (!KeepsLastError) record(code);
  } catch (...) {
    code = code_of_exception(name);
  }
  return code;
}

}  // namespace
}  // namespace hipsim

#define HIPSIM_FOLLOWING(...) __VA_OPT__(, ) __VA_ARGS__
#define HIPSIM_GUARD(name, parameters, arguments)                                          \
  HIPSIM_EXPORT hip_abi::hipError_t name parameters {                                      \
    return hipsim::guard<hipsim::keeps_last_error(#name), hipsim::needs_no_device(#name)>( \
        #name, #arguments, &hipsim::calls::name HIPSIM_FOLLOWING arguments);               \
  }

using namespace hip_abi;  // the lists name HIP's types without a namespace

#define HIP_CALL HIPSIM_GUARD
#define HIP_CALL_OPTIONAL HIPSIM_GUARD
#include "hip/hip_calls.def"
#define HIP_CALL HIPSIM_GUARD
#include "extra_calls.def"
