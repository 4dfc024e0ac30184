// Driver calls as plain data, so that thousands of them can follow one another with next to nothing in
// between.
//
// After a call of the driver the processor's caches, and what it knows of pages and branches, are the
// driver's. So the calls of a row lie side by side, and the loop that makes them is a few lines of machine
// code; what the answers mean to the owners is settled before and after, for all of them at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>

#include "deadline.hpp"
#include "hip/runtime.hpp"

namespace hipplan {

struct driver_call {
  enum class function : std::uint8_t { hipMemCreate, hipMemMap, hipMemSetAccess, hipMemUnmap, hipMemRelease };

  function which = function::hipMemCreate;
  std::uintptr_t address = 0;
  std::size_t size_bytes = 0;
  hip::hipMemGenericAllocationHandle_t handle{};  ///< of hipMemCreate: its answer
  const hip::hipMemAllocationProp* properties = nullptr;
  std::span<const hip::hipMemAccessDesc> rights{};

  [[nodiscard]] hip::hipError_t make(hip::runtime& runtime) { return make(runtime, handle); }
  /// made: where hipMemCreate's answer goes.
  [[nodiscard]] hip::hipError_t make(hip::runtime& runtime,
                                     hip::hipMemGenericAllocationHandle_t& made) const {
    // No switch: its table of jumps would be one more thing that is not in the caches.
    void* const pointer = reinterpret_cast<void*>(address);
    if (which == function::hipMemMap) return runtime.hipMemMap(pointer, size_bytes, 0, handle, 0);
    if (which == function::hipMemSetAccess) {
      return runtime.hipMemSetAccess(pointer, size_bytes, rights.data(), rights.size());
    }
    if (which == function::hipMemUnmap) return runtime.hipMemUnmap(pointer, size_bytes);
    if (which == function::hipMemRelease) return runtime.hipMemRelease(handle);
    const auto asked = *properties;
    return runtime.hipMemCreate(&made, size_bytes, &asked, 0);
  }
};

/// How far a row came.
struct row_outcome {
  std::size_t done = 0;                      ///< calls that succeeded
  hip::hipError_t result = hip::hipSuccess;  ///< of the one after them; success: the time was over
  std::exception_ptr thrown;                 ///< instead of that call: the interceptor
};

/// Makes calls one after the other until one fails or the time is over, which is looked at after each.
[[nodiscard]] row_outcome make_row(hip::runtime& runtime, std::span<driver_call> calls,
                                   deadline& stop) noexcept;

}  // namespace hipplan
