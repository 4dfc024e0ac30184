// NVIDIA's driver as a table of functions, opened by name on first use.
#pragma once

#include <string>

#include "cuda_abi.h"

namespace hipcuda {

using namespace cuda_abi;  // driver_calls.def names CUDA's types plainly

struct driver_table {
#define CUDA_CALL(symbol, name, version, parameters) CUresult(*symbol) parameters = nullptr;
#include "driver_calls.def"
};

struct loaded_driver {
  driver_table calls;
  int version = 0;      ///< CUDA version of the driver, major * 1000 + minor * 10; 0: no driver
  std::string problem;  ///< one sentence; empty: the table is complete
};

/// Opens libcuda.so.1 on the first call, never throws for a missing driver and never closes it.
const loaded_driver& load_driver();

}  // namespace hipcuda
