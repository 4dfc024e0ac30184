#include "guard.hpp"

#include <atomic>
#include <cstdio>
#include <utility>

#include "process.hpp"

namespace hipsim {
namespace {

// Without the log's lock: a thread that the child does not have may hold it.
void report_once_in_child(const char* function) {
  static std::atomic<bool> reported{false};
  if (reported.exchange(true)) return;
  std::fprintf(stderr, "hipsim: %s: refused in a forked child, as its parent had started HIP\n", function);
}

}  // namespace

hip_abi::hipError_t refusal_of_all(const char* function) {
  const auto& here = process::instance();
  if (here.is_forked_child()) {
    report_once_in_child(function);
    return hip_abi::hipErrorNotInitialized;
  }
  return here.broken() ? hip_abi::hipErrorInvalidDevice : hip_abi::hipSuccess;
}

void record(std::uint32_t code) {
  auto& thread = process::thread();
  if (std::exchange(thread.unrecorded, false)) return;
  thread.last_result = code;
  const bool is_error = code != hip_abi::hipSuccess && code != hip_abi::hipErrorNotReady;
  if (is_error || !process::instance().keeps_only_errors()) thread.last_error = code;
}

}  // namespace hipsim
