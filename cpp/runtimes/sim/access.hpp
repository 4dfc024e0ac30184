// Who may touch which bytes, and moving them: copies, fills and the stand-in for a kernel share this.
#pragma once

#include <cstdint>
#include <string>

#include "machine.hpp"

namespace hipsim {

/// Bytes from `address` to the end of what HIP knows there (for mapped memory: the reservation's end).
/// 0: an unmapped part of a reservation. UINT64_MAX: HIP does not know the address, it is the program's.
[[nodiscard]] std::uint64_t room_at(const machine& m, std::uintptr_t address);
[[nodiscard]] bool is_known(const machine& m, std::uintptr_t address);

/// What HIP takes for the device of what it knows there: pinned and managed memory have one, too.
[[nodiscard]] int device_at(const machine& m, std::uintptr_t address);
/// Whether only that device has it in its tables: ordinary device memory.
[[nodiscard]] bool is_of_one_device(const machine& m, std::uintptr_t address);
/// Why a copy or fill carried out by one of `engines` (a bit per device) faults in the range, or "".
/// Ordinary device memory is open to all copies; mapped memory needs the right that was granted.
[[nodiscard]] std::string copy_refusal(const machine& m, std::uintptr_t address, std::uint64_t bytes,
                                       bool write, std::uint64_t engines);
/// Why a kernel on `device` would fault there, or "". Ordinary device memory of others needs peer access.
[[nodiscard]] std::string kernel_refusal(const machine& m, std::uintptr_t address, std::uint64_t bytes,
                                         bool write, int device);

/// Copies; both ranges have been checked. Throws bad_host_pointer, std::bad_alloc.
void copy_bytes(const machine& m, std::uintptr_t to, std::uintptr_t from, std::uint64_t bytes);
/// Repeats a pattern of 1, 2 or 4 bytes over a range that has been checked.
void fill_bytes(const machine& m, std::uintptr_t to, std::uint64_t bytes, std::uint32_t value, int width);

}  // namespace hipsim
