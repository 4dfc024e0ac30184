// The simulator's own functions, one per export, declared from the lists; calls/*.cpp define them.
//
// They may throw: the guard in exports.cpp turns exceptions into codes. They never call the exports, so that
// each call of the program is one line in a trace.
#pragma once

#include "extra_abi.h"

namespace hipsim::calls {

using namespace hip_abi;

#define HIP_CALL(name, parameters, arguments) hipError_t name parameters;
#include "hip/hip_calls.def"
#define HIP_CALL(name, parameters, arguments) hipError_t name parameters;
#include "extra_calls.def"

}  // namespace hipsim::calls
