// Which devices may access which bytes, and moving bytes: for copies, fills and hipsim_touch.
#pragma once

#include <cstdint>
#include <string>

#include "machine.hpp"

namespace hipsim {

/// Bytes from `address` to the end of the memory that HIP knows there (for mapped memory: the reservation's
/// end). 0: an unmapped part of a reservation. UINT64_MAX: HIP does not know the address, it belongs to the
/// program.
[[nodiscard]] std::uint64_t room_at(const machine& m, std::uintptr_t address);
[[nodiscard]] bool is_known(const machine& m, std::uintptr_t address);

/// The device that HIP records for the memory at an address: pinned and managed memory have one, too.
[[nodiscard]] int device_at(const machine& m, std::uintptr_t address);
/// Whether it is in a mapping of memory that hipMemCreate has made on the host.
[[nodiscard]] bool is_created_on_host(const machine& m, std::uintptr_t address);
/// Whether it is ordinary device memory, which only its device has in its page tables.
[[nodiscard]] bool is_of_one_device(const machine& m, std::uintptr_t address);
/// Why a copy or fill by one of `engines` (a bit per device) faults in the range, or "". Every copy may
/// access ordinary device memory; mapped memory needs the right that was granted.
[[nodiscard]] std::string copy_refusal(const machine& m, std::uintptr_t address, std::uint64_t bytes,
                                       bool write, std::uint64_t engines);
/// Why a kernel on `device` would fault there, or "". Ordinary device memory of others needs peer access.
[[nodiscard]] std::string kernel_refusal(const machine& m, std::uintptr_t address, std::uint64_t bytes,
                                         bool write, int device);

/// Copies between ranges that were checked before. Throws bad_host_pointer, std::bad_alloc.
void copy_bytes(const machine& m, std::uintptr_t to, std::uintptr_t from, std::uint64_t bytes);
/// Fills a range that was checked before with a pattern of 1, 2 or 4 bytes.
void fill_bytes(const machine& m, std::uintptr_t to, std::uint64_t bytes, std::uint32_t value, int width);

}  // namespace hipsim
