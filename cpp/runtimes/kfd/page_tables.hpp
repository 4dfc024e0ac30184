// Memory accesses of a GPU, through its page table, and page faults.
#pragma once

#include "machine.hpp"

namespace kfdsim {

enum class right : u8 { read, write };

/// Contiguous bytes that a GPU can access, up to the end of a page-table entry.
struct reached {
  char* bytes;  ///< null: a page fault
  u64 size;
};
/// A page fault ends the process as on hardware, or is counted with KFDSIM_ON_FAULT=count.
[[nodiscard]] reached reach(u32 gpu, u64 address, u64 wanted, right needed);
bool copy(u32 gpu, u64 to, u64 from, u64 size);
bool fill(u32 gpu, u64 to, const void* pattern, u64 pattern_size, u64 size);

}  // namespace kfdsim
