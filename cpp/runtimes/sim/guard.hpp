// What every export does, whether its function is simulated or refused.
#pragma once

#include <cstdint>

#include "extra_abi.h"

namespace hipsim {

/// The code that every call gives in a forked child, or where the simulator could not start; else Success.
[[nodiscard]] hip_abi::hipError_t refusal_of_all(const char* function);

/// Makes `code` the thread's last result and, as its release does it, its last error.
void record(std::uint32_t code);

}  // namespace hipsim
