// What this machine itself can back: a profile may have terabytes, of which a runner of 16 GB keeps only what
// is written.
#pragma once

#include <string>

#include "machine.hpp"

namespace kfdsim {

/// How many bytes all memory of a process may take here: this machine's memory and swap, its control group's
/// limit, KFDSIM_MEMORY_LIMIT.
[[nodiscard]] u64 backing_limit();
/// Why KFDSIM_MEMORY_LIMIT cannot be read; empty if it can.
[[nodiscard]] std::string wrong_limit();
/// Whether a GPU may write these bytes of a memory with a file.
[[nodiscard]] bool can_back(const physical& memory, u64 inside, u64 bytes);
/// Sets bytes to zero by giving back what backs them. Returns how many, from the first on: whole pages.
[[nodiscard]] u64 give_back(const physical& memory, u64 inside, u64 bytes);

}  // namespace kfdsim
