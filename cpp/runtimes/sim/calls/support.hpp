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

/// The answer where AMD's library crashes or is undefined, with a line in the log that says so.
[[nodiscard]] inline hipError_t undefined(const char* function, const std::string& what) {
  note(function, what + " (undefined in the real library)");
  return hipErrorInvalidValue;
}

/// The device of a stream, or of the current thread for the null and per-thread streams.
/// Returns hipSuccess, or what this release says of a handle that is none.
[[nodiscard]] hipError_t stream_device(const char* function, const machine& m, hipStream_t stream,
                                       int& device);

/// [address, address + bytes) without wrapping round.
[[nodiscard]] inline bool wraps(std::uintptr_t address, std::uint64_t bytes) {
  return address + bytes < address;
}

/// Physical memory and rights follow whole pages.
[[nodiscard]] inline bool page_aligned(std::uint64_t value) { return value % page_bytes == 0; }

}  // namespace hipsim::calls
