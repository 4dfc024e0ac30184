// What the call files share: handles as numbers, streams, results for undefined behaviour.
#pragma once

#include "calls.hpp"
#include "process.hpp"

namespace hipsim::calls {

template <class Pointer>
[[nodiscard]] std::uint64_t id_of(Pointer* handle) {
  return reinterpret_cast<std::uint64_t>(handle);
}
[[nodiscard]] inline std::uintptr_t address_of(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}
[[nodiscard]] inline void* pointer_to(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

/// The result where AMD's library crashes or its behaviour is undefined, with a line in the log.
[[nodiscard]] inline hipError_t undefined(const char* function, const std::string& what) {
  note(function, what + " (undefined in the real library)");
  return hipErrorInvalidValue;
}

/// The result where AMD's library returns Success and then a GPU accesses memory without a right, which ends
/// the process on hardware: IllegalAddress and a line in the log; with option.gpu_fault_aborts the process
/// ends too.
[[nodiscard]] hipError_t gpu_fault(const char* function, const machine& m, const std::string& problem);

/// The handle of a device's primary context contains only the ordinal. Not a canonical address, never zero.
inline constexpr std::uint64_t context_base = 0x51ac'0000'0000'0000;
[[nodiscard]] inline hipCtx_t context_of(int device) {
  return reinterpret_cast<hipCtx_t>(context_base + static_cast<std::uint64_t>(device));
}

/// The device of a stream, or of the current thread for the null and per-thread streams.
/// Returns hipSuccess, or this release's error for an invalid handle.
[[nodiscard]] hipError_t stream_device(const char* function, const machine& m, hipStream_t stream,
                                       int& device);

/// Where in the order of a device's work a stream that exists stands.
[[nodiscard]] stream_place place_of(const machine& m, hipStream_t stream);
/// Waits for the functions of the program that are ahead of the next call in a stream. Not under the
/// machine's lock, as they may call HIP.
void wait_for_stream(hipStream_t stream);

/// Allocates pinned or managed memory, with checked arguments.
[[nodiscard]] hipError_t allocate_on_host(void** ptr, std::size_t size, block_kind kind, unsigned int flags);

/// Whether [address, address + bytes) wraps around the end of the address space.
[[nodiscard]] inline bool wraps(std::uintptr_t address, std::uint64_t bytes) {
  return address + bytes < address;
}

/// Physical memory and rights have page granularity.
[[nodiscard]] inline bool page_aligned(std::uint64_t value) { return value % page_bytes == 0; }

}  // namespace hipsim::calls
