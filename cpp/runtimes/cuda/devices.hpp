// The machine as HIP sees it: numbered devices, a current one per thread, one primary context each.
//
// Primary contexts are what CUDA's own runtime uses, so memory is shared with PyTorch and CuPy in the same
// process. Each is retained when first needed and held until the process ends: releasing one could destroy
// memory that others still use.
#pragma once

#include "driver_table.hpp"
#include "translate.hpp"

namespace hipcuda {

/// The driver's functions. Throws NoDevice where there is no usable driver or no device.
const driver_table& driver();

/// Number of devices, 0 without a usable driver. Never throws.
[[nodiscard]] int device_count();
/// Why there is no device, in one sentence; empty while there is one.
[[nodiscard]] const char* no_device_reason();

[[nodiscard]] bool is_device(int ordinal);
/// CUDA's handle of a device. Throws InvalidDevice (or `otherwise`) for an invalid number.
[[nodiscard]] CUdevice device_handle(int ordinal, hipError_t otherwise = hipErrorInvalidDevice);
[[nodiscard]] CUcontext primary_context(int ordinal);

/// The calling thread's device; 0 until it chooses.
[[nodiscard]] int current_device();
void set_current_device(int ordinal);
/// The calling thread's device, or another one where only that has its context already.
[[nodiscard]] int device_with_context();

/// Makes a device's primary context current, and at its end what was current before.
/// A context that is current already, as in a thread of PyTorch on the same device, costs one query.
class context_scope {
 public:
  explicit context_scope(int ordinal);
  ~context_scope();
  context_scope(const context_scope&) = delete;
  context_scope& operator=(const context_scope&) = delete;

 private:
  const driver_table* pushed_by_ = nullptr;  ///< null: nothing to put back
};

}  // namespace hipcuda
