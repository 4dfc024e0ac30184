// The C interface for tests and tools (kfdsim.h).
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "backing.hpp"
#include "faults.hpp"
#include "ledger.hpp"
#include "machine.hpp"
#include "memory.hpp"

extern "C" {
#include "kfdsim.h"
}

namespace {

thread_local std::string last_message;

std::string call_names() {
  std::string text;
#define IOCTL(name, number) text += #name "\n";
#define LIBDRM(name) text += #name "\n";
#include "calls.def"
  return text;
}

}  // namespace

KFDSIM_EXPORT size_t kfdsim_ledger(char* out, size_t capacity) {
  const std::lock_guard lock(kfdsim::mutex());
  const auto text = kfdsim::ledger();
  if (out && capacity > 0) {
    const auto kept = std::min(text.size(), capacity - 1);
    std::memcpy(out, text.data(), kept);
    out[kept] = '\0';
  }
  return text.size();
}

KFDSIM_EXPORT int kfdsim_fail(const char* rules) {
  try {
    last_message.clear();
    kfdsim::arm(rules);
    return 0;
  } catch (const std::invalid_argument& error) {
    last_message = error.what();
    return 1;
  }
}

KFDSIM_EXPORT const char* kfdsim_last_message(void) { return last_message.c_str(); }
KFDSIM_EXPORT uint64_t kfdsim_fail_fired(void) { return kfdsim::failed_calls(); }
KFDSIM_EXPORT uint64_t kfdsim_fail_calls(void) { return kfdsim::counted_calls(); }

KFDSIM_EXPORT const char* kfdsim_calls(void) {
  static const auto& text = *new std::string(call_names());
  return text.c_str();
}

KFDSIM_EXPORT uint64_t kfdsim_page_faults(void) {
  const std::lock_guard lock(kfdsim::mutex());
  return kfdsim::machine().page_faults;
}

KFDSIM_EXPORT uint64_t kfdsim_kernels_not_run(void) {
  const std::lock_guard lock(kfdsim::mutex());
  return kfdsim::machine().kernels_not_run;
}

KFDSIM_EXPORT uint64_t kfdsim_used(int gpu) {
  const std::lock_guard lock(kfdsim::mutex());
  kfdsim::free_unshared();
  const auto& gpus = kfdsim::machine().gpus;
  return gpu >= 0 && gpu < static_cast<int>(gpus.size()) ? gpus[static_cast<std::size_t>(gpu)].used : 0;
}

KFDSIM_EXPORT uint64_t kfdsim_backing_limit(void) { return kfdsim::backing_limit(); }
