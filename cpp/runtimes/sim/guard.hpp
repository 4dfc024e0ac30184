// What every export does, for simulated and for refused functions.
#pragma once

#include <cstdint>

#include "extra_abi.h"

#define HIPSIM_EXPORT extern "C" __attribute__((visibility("default")))

namespace hipsim {

/// The error of every call in a forked child, or if the simulator could not start; else Success.
[[nodiscard]] hip_abi::hipError_t refusal_of_all(const char* function);

/// Records `code` as the thread's last result and, by the rules of the release, as its last error.
void record(std::uint32_t code);

}  // namespace hipsim
