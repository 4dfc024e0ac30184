// The machine as HIP sees it: numbered devices, a current one per thread, one primary context each.
//
// CUDA's own runtime uses primary contexts, so memory is shared with PyTorch and CuPy in the same process.
// Each is retained when first needed and held until the process ends: releasing one could destroy memory that
// other libraries still use.
#pragma once

#include "driver_table.hpp"
#include "translate.hpp"

namespace hipcuda {

/// The driver's functions. Throws NoDevice if there is no usable driver or no device.
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
/// The calling thread's device if its context exists already, else a device whose context does, else the
/// thread's.
[[nodiscard]] int device_with_context();

/// Makes a device's primary context current for a scope, then restores the previous one.
/// If it is current already, as in a thread of PyTorch on the same device, the scope costs one query.
class context_scope {
 public:
  explicit context_scope(int ordinal);
  ~context_scope();
  context_scope(const context_scope&) = delete;
  context_scope& operator=(const context_scope&) = delete;

 private:
  const driver_table* pushed_by_ = nullptr;  ///< null: nothing to restore
};

}  // namespace hipcuda
