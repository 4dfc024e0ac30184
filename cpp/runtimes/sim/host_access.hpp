// Access to the program's own memory, in which an invalid address causes an error, not a signal.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hipsim {

/// Whether `bytes` from an address on can be read. True if the kernel does not report it.
[[nodiscard]] bool is_readable(std::uintptr_t address, std::size_t bytes) noexcept;

/// These throw bad_host_pointer; a part of the bytes may have been moved then.
void read_host(std::uintptr_t from, void* to, std::size_t bytes);
void write_host(std::uintptr_t to, const void* from, std::size_t bytes);
/// The ranges may overlap.
void copy_host(std::uintptr_t to, std::uintptr_t from, std::size_t bytes);

}  // namespace hipsim
