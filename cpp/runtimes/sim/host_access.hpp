// The program's own memory, touched in a way that an address which is none ends in an error and not in a
// signal.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hipsim {

/// Whether `bytes` from an address on can be read. True where the kernel does not tell.
[[nodiscard]] bool is_readable(std::uintptr_t address, std::size_t bytes) noexcept;

/// These throw bad_host_pointer, with what was done by then done.
void read_host(std::uintptr_t from, void* to, std::size_t bytes);
void write_host(std::uintptr_t to, const void* from, std::size_t bytes);
/// The ranges may overlap.
void copy_host(std::uintptr_t to, std::uintptr_t from, std::size_t bytes);

}  // namespace hipsim
