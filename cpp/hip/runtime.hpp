// A runtime: a shared library with HIP's C ABI, opened by name, its functions in one table.
//
// Every driver call of hipplan goes through a runtime's methods, one per line of hip_calls.def, each run
// through the interceptor. A runtime is never dlclosed: the driver keeps threads and exit handlers.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <concepts>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "error.hpp"
#include "hip_abi.h"
#include "intercept.hpp"

namespace hip {

using namespace hip_abi;  // the X-macro's parameter lists name HIP's types plainly

struct function_table {
#define HIP_CALL(name, params, args) hipError_t(*name) params = nullptr;
#include "hip_calls.def"
};

/// Whether NotReady is a result of this call, and not a reason to retry it.
constexpr bool answers_not_ready(std::string_view call) { return call == "hipEventQuery"; }

class runtime {
 public:
  /// Opens a library and fills the table; the same path returns the same runtime.
  /// Throws runtime_unusable: not found, a required function missing, or a HIP version below 6.1.
  [[nodiscard]] static std::shared_ptr<runtime> open(const std::string& path);

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// hipRuntimeGetVersion: major * 10^7 + minor * 10^5 + patch.
  [[nodiscard]] int version() const noexcept { return version_; }
  /// Reads the version again: the simulator can become another machine.
  void read_version() noexcept { table_.hipRuntimeGetVersion(&version_); }
  [[nodiscard]] interceptor& intercepts() noexcept { return interceptor_; }
  /// Calls repeated because the driver returned NotReady, since the runtime was opened.
  [[nodiscard]] std::uint64_t retries() const noexcept { return retries_.load(); }
  /// The same for the calls of this thread, on any runtime.
  [[nodiscard]] static std::uint64_t retries_of_this_thread() noexcept;
  /// How long to wait before the first retry; each further one waits twice as long.
  void set_retry_pause(std::chrono::microseconds pause) noexcept { retry_pause_ = pause; }
  /// A symbol beyond HIP's ABI (the simulator's own calls); null where the library has none.
  [[nodiscard]] void* symbol(const char* name) const noexcept;

  /// False in a forked child and after shutdown(): then no owner may call the driver any more.
  [[nodiscard]] bool may_call() const noexcept;
  /// The process is ending: from here on owners drop their objects without a driver call.
  static void shutdown() noexcept;

  /// Clears the thread's last error. Not a call of the plan: no fault rule counts it or fails it.
  void forget_last_error() noexcept { table_.hipGetLastError(); }
  /// Throws hip_error unless the result is success. It clears the thread's last error, so that a framework in
  /// the same process does not find it (PyTorch calls hipGetLastError after each launch).
  void check(hipError_t result, const char* call, const std::string& subject,
             const std::string& arguments = {});
  /// The same for calls made by the thousand: `words` returns {subject, arguments}, and runs only after a
  /// failure.
  template <std::invocable Words>
  void check(hipError_t result, const char* call, Words words) {
    if (result == hipSuccess) [[likely]]
      return;
    forget_last_error();  // before words(), which may find no memory
    const auto [subject, arguments] = words();
    check(result, call, subject, arguments);
  }

#define HIP_COMMA_ARGS(...) __VA_OPT__(, ) __VA_ARGS__
#define HIP_CALL(name, params, args)                                                                   \
  hipError_t name params {                                                                             \
    const auto call = [&] { return interceptor_.run(#name, #args, table_.name HIP_COMMA_ARGS args); }; \
    if constexpr (answers_not_ready(#name)) return call();                                             \
    return until_ready(call);                                                                          \
  }
#define HIP_CALL_OPTIONAL(name, params, args)                                                            \
  hipError_t name params {                                                                               \
    if (!table_.name) return hipErrorNotSupported;                                                       \
    return until_ready([&] { return interceptor_.run(#name, #args, table_.name HIP_COMMA_ARGS args); }); \
  }
#include "hip_calls.def"
#undef HIP_COMMA_ARGS

 private:
  /// Repeats a call while it returns NotReady, at most six times within about 60 ms. Nothing else is retried.
  template <class Call>
  hipError_t until_ready(Call call) {
    hipError_t result = call();
    for (int retry = 0; result == hipErrorNotReady && pause_before(retry); ++retry) result = call();
    return result;
  }
  /// False after the last retry.
  bool pause_before(int retry);

  runtime(std::string path, void* library);
  void require_version();
  void fill_table();

  std::string path_;
  void* library_;
  int version_ = 0;
  pid_t owner_process_;
  function_table table_;
  interceptor interceptor_;
  std::atomic<std::uint64_t> retries_{0};
  std::atomic<std::chrono::microseconds> retry_pause_{std::chrono::milliseconds(1)};
};

/// Paths of all libraries loaded in this process whose file name starts with `prefix` (dl_iterate_phdr).
[[nodiscard]] std::vector<std::string> loaded_libraries(const std::string& prefix);

/// Oldest HIP version whose virtual memory management works on Linux.
inline constexpr int oldest_version = 60100000;

}  // namespace hip
