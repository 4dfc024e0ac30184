// One function per exported HIP call, without the guard: it returns on success and throws `failure`
// otherwise. They run where exports.cpp put them: driver present, the thread's context current.
#pragma once

#include "devices.hpp"

namespace hipcuda {

#define HIP_CALL(name, parameters, arguments) void name parameters;
#include "hip/hip_calls.def"

/// The thread's last error, as HIP 7 keeps it: only errors are recorded, and asking clears it.
void record_error(hipError_t code);

}  // namespace hipcuda
