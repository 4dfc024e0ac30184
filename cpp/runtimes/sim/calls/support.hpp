// What the call files share: handles as numbers, streams, the "undefined in the real library" answer.
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

/// The answer where AMD's library crashes or is undefined, with a line in the log.
[[nodiscard]] inline hipError_t undefined(const char* function, const std::string& what) {
  note(function, what + " (undefined in the real library)");
  return hipErrorInvalidValue;
}

/// The answer where AMD's library returns Success and a GPU then touches what it may not, which ends the
/// process on hardware: IllegalAddress and a line in the log, or, with option.gpu_fault_aborts, the same end
/// as there.
[[nodiscard]] hipError_t gpu_fault(const char* function, const machine& m, const std::string& problem);

/// The handle of a device's primary context carries the ordinal and nothing else. Not canonical, never zero.
inline constexpr std::uint64_t context_base = 0x51ac'0000'0000'0000;
[[nodiscard]] inline hipCtx_t context_of(int device) {
  return reinterpret_cast<hipCtx_t>(context_base + static_cast<std::uint64_t>(device));
}

/// The device of a stream, or of the current thread for the null and per-thread streams.
/// Returns hipSuccess, or what this release says of an invalid handle.
[[nodiscard]] hipError_t stream_device(const char* function, const machine& m, hipStream_t stream,
                                       int& device);

/// [address, address + bytes) without wrapping round.
[[nodiscard]] inline bool wraps(std::uintptr_t address, std::uint64_t bytes) {
  return address + bytes < address;
}

/// Physical memory and rights follow whole pages.
[[nodiscard]] inline bool page_aligned(std::uint64_t value) { return value % page_bytes == 0; }

}  // namespace hipsim::calls
