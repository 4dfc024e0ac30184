// Driver calls as plain data, so that thousands of them run in a tight loop.
//
// After a driver call the processor's caches, TLB and branch predictor hold the driver's data. So the calls
// of a batch lie side by side in memory, and the loop that makes them is short; the owners prepare all calls
// before it and take all results after it.
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
  hip::hipMemGenericAllocationHandle_t handle{};  ///< of hipMemCreate: its result
  const hip::hipMemAllocationProp* properties = nullptr;
  std::span<const hip::hipMemAccessDesc> rights{};

  [[nodiscard]] hip::hipError_t make(hip::runtime& runtime) { return make(runtime, handle); }
  /// made: receives the handle of a hipMemCreate.
  [[nodiscard]] hip::hipError_t make(hip::runtime& runtime,
                                     hip::hipMemGenericAllocationHandle_t& made) const {
    // Not a switch: its jump table would be one more cache miss.
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

/// The outcome of a batch of calls.
struct calls_outcome {
  std::size_t done = 0;                      ///< calls that succeeded
  hip::hipError_t result = hip::hipSuccess;  ///< of the call after them; success: the deadline has passed
  std::exception_ptr thrown;                 ///< by the interceptor, in place of that call
};

/// Makes calls one after the other until one fails or the deadline has passed.
[[nodiscard]] calls_outcome make_calls(hip::runtime& runtime, std::span<driver_call> calls,
                                       deadline& stop) noexcept;

}  // namespace hipplan
