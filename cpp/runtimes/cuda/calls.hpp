// One function per exported HIP call, without the guard: it returns on success and throws `failure`
// otherwise. exports.cpp calls them with the driver loaded and the thread's context current.
#pragma once

#include "devices.hpp"

namespace hipcuda {

#define HIP_CALL(name, parameters, arguments) void name parameters;
#include "hip/hip_calls.def"

/// Records the thread's last error, as HIP 7 does: only errors, and hipGetLastError clears it.
void record_error(hipError_t code);

}  // namespace hipcuda
