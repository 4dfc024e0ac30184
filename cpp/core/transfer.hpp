// Blocking copies and fills.
#pragma once

#include "hip/runtime.hpp"
#include "units.hpp"

namespace hipplan {

/// hipMemset, then a wait for the current device's null stream. Throws hip_error: hipErrorInvalidValue.
void fill(hip::runtime& runtime, std::uintptr_t address, int value, std::size_t size_bytes);
/// As fill(), by a device.
void fill_on(hip::runtime& runtime, device_id device, std::uintptr_t address, int value,
             std::size_t size_bytes);
/// hipMemPrefetchAsync of managed memory to a device, or to the CPU, in the null stream of `on`, and a wait
/// for it. Throws hip_error: hipErrorInvalidValue, hipErrorInvalidDevice.
void prefetch(hip::runtime& runtime, std::uintptr_t address, std::size_t size_bytes, device_id to,
              device_id on);
/// hipMemcpy; HIP finds the direction from the addresses. Throws hip_error: hipErrorInvalidValue.
void copy(hip::runtime& runtime, std::uintptr_t to, std::uintptr_t from, std::size_t size_bytes);
/// hipMemcpyPeer. Throws hip_error: hipErrorInvalidDevice, hipErrorInvalidValue.
void copy_peer(hip::runtime& runtime, std::uintptr_t to, device_id to_device, std::uintptr_t from,
               device_id from_device, std::size_t size_bytes);

}  // namespace hipplan
