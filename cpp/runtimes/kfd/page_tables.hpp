// Memory accesses of a GPU, through its page table, and page faults.
#pragma once

#include "machine.hpp"

namespace kfdsim {

/// Contiguous bytes that a GPU can access, up to the end of a page-table entry.
struct reached {
  char* bytes;  ///< null: a page fault
  u64 size;
  const physical* memory;  ///< null: the program's own memory, or managed memory
  u64 inside;              ///< where in the memory the bytes begin
};
/// A page fault ends the process as on hardware, or is counted with KFDSIM_ON_FAULT=count.
[[nodiscard]] reached reach(u32 gpu, u64 address, u64 wanted, right needed);
/// What a GPU's fault does to the process.
void end_after_fault();
/// The same for bytes that lie together, at a multiple of `alignment`; null: a page fault.
[[nodiscard]] char* reach_all(u32 gpu, u64 address, u64 size, right needed, u64 alignment = 1);
template <class T>
[[nodiscard]] T* reach_object(u32 gpu, u64 address, right needed) {
  return reinterpret_cast<T*>(reach_all(gpu, address, sizeof(T), needed, alignof(T)));
}
/// Memory that a GPU has mapped for reading and writing; null bytes: it has not, which is no page fault.
struct mapped_memory {
  physical* memory;
  char* bytes;
};
[[nodiscard]] mapped_memory mapped_at(u32 gpu, u64 address, u64 size);

bool copy(u32 gpu, u64 to, u64 from, u64 size);
bool fill(u32 gpu, u64 to, const void* pattern, u64 pattern_size, u64 size);

}  // namespace kfdsim
