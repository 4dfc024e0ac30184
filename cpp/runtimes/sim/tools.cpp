// The C interface for tests and tools (hipsim.h).
#include <cstring>
#include <exception>
#include <stdexcept>

#include "access.hpp"
#include "extra_abi.h"
#include "guard.hpp"
#include "ledger.hpp"
#include "process.hpp"

extern "C" {
#include "hipsim.h"
}

namespace hipsim {
namespace {

thread_local std::string last_message;

int failed(int code, const std::string& message) {
  last_message = message;
  return code;
}

template <class Work>
int attempt(Work work) noexcept {
  try {
    last_message.clear();
    if (process::instance().is_forked_child())
      return failed(3, "a forked child has no part in the simulator");
    return work();
  } catch (const std::logic_error& error) {
    const bool bad_text = dynamic_cast<const std::invalid_argument*>(&error) != nullptr;
    return failed(bad_text ? 1 : 2, error.what());
  } catch (const std::exception& error) {
    return failed(3, error.what());
  }
}

template <class Count>
std::uint64_t counted(Count count) noexcept {
  std::uint64_t out = 0;
  attempt([&] {
    out = count(process::instance().interceptor);
    return 0;
  });
  return out;
}

}  // namespace
}  // namespace hipsim

using hipsim::attempt;
using hipsim::failed;

extern "C" {

HIPSIM_EXPORT int hipsim_configure(const char* profile_text) {
  return attempt([&] {
    hipsim::process::instance().configure(profile_text);
    return 0;
  });
}

HIPSIM_EXPORT const char* hipsim_last_message(void) { return hipsim::last_message.c_str(); }

HIPSIM_EXPORT size_t hipsim_ledger(char* out, size_t capacity) {
  size_t needed = 0;
  attempt([&] {
    const auto text = hipsim::ledger(*hipsim::reading());
    needed = text.size();
    if (out && capacity > 0) {
      const auto kept = std::min(needed, capacity - 1);
      std::memcpy(out, text.data(), kept);
      out[kept] = '\0';
    }
    return 0;
  });
  return needed;
}

HIPSIM_EXPORT int hipsim_fail(const char* rules) {
  return attempt([&] {
    hipsim::process::instance().arm_faults(rules ? rules : "");
    return 0;
  });
}

HIPSIM_EXPORT uint64_t hipsim_fail_fired(void) {
  return hipsim::counted([](auto& interceptor) { return interceptor.fired(); });
}

HIPSIM_EXPORT uint64_t hipsim_fail_calls(void) {
  return hipsim::counted([](auto& interceptor) { return interceptor.calls(); });
}

HIPSIM_EXPORT int hipsim_trace(const char* path) {
  return attempt([&] {
    hipsim::process::instance().interceptor.trace_to(path ? path : "");
    return 0;
  });
}

HIPSIM_EXPORT int hipsim_touch(int device, const void* address, size_t bytes, int mode) {
  return attempt([&] {
    const hipsim::reading m;
    if (!m->is_device(device)) return failed(hip_abi::hipErrorInvalidDevice, "no such device");
    if (mode < 1 || mode > 3)
      return failed(hip_abi::hipErrorInvalidValue, "mode is 1 (read), 2 (write) or 3 (both)");
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    std::string problem;
    if (mode & HIPSIM_READ) problem = hipsim::kernel_refusal(*m, at, bytes, false, device);
    if (problem.empty() && (mode & HIPSIM_WRITE))
      problem = hipsim::kernel_refusal(*m, at, bytes, true, device);
    return problem.empty() ? 0 : failed(hip_abi::hipErrorIllegalAddress, problem);
  });
}

HIPSIM_EXPORT int hipsim_set_in_use(int device, uint64_t bytes) {
  return attempt([&] {
    hipsim::writing m;
    if (!m->is_device(device)) return failed(hip_abi::hipErrorInvalidDevice, "no such device");
    m->at(device).in_use_bytes = bytes;
    return 0;
  });
}

HIPSIM_EXPORT const char* hipsim_quirks(void) {
  static const std::string text = [] {
    std::string out;
    for (const auto& quirk : hipsim::known_quirks())
      out += std::string(quirk.name) + ": " + quirk.meaning + "\n";
    return out;
  }();
  return text.c_str();
}

}  // extern "C"
