// Strong types for bare integers: a device cannot be passed as a size.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>

namespace hipplan {

/// One GPU by ordinal, as this process sees it (after the visibility variables).
struct device_id {
  int value = 0;
  friend auto operator<=>(const device_id&, const device_id&) = default;
};

/// A device, or the CPU where HIP takes one in its place (advice, prefetch): hipCpuDeviceId.
inline constexpr device_id cpu_device{-1};

[[nodiscard]] inline std::string text(device_id device) {
  return device == cpu_device ? "the CPU" : "device " + std::to_string(device.value);
}

/// An address as the driver's calls take it.
[[nodiscard]] inline void* pointer_at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

[[nodiscard]] std::string hexadecimal(std::uintptr_t value);
[[nodiscard]] inline std::string hexadecimal(const void* pointer) {
  return hexadecimal(reinterpret_cast<std::uintptr_t>(pointer));
}

}  // namespace hipplan
