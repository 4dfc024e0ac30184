// Physical memory: where it lies, who counts it, and how another process or libdrm gets it.
//
// A DMA-BUF is a descriptor of the memory's own file, whose first page describes it. Each export opens that
// file anew and takes a lock on it: the kernel keeps the lock while anybody anywhere has that descriptor, or
// has imported it.
#pragma once

#include "machine.hpp"

namespace kfdsim {

/// A record with memory of its own in the memory file; nothing is written, so nothing is taken yet.
[[nodiscard]] physical* new_memory(u64 size, u32 flags, u32 gpu);
/// Gives a record without memory a file of its own. False, and errno: there is no room for one.
[[nodiscard]] bool make_shareable(physical* memory);
/// A record alone.
[[nodiscard]] physical* new_record(u64 size, u32 flags, u32 gpu);
/// Gives a reference back. The memory goes with the last one, and with the last descriptor of it.
void put(physical* memory);
/// Where this process sees its bytes; null: it has no room for them.
[[nodiscard]] char* view(physical* memory);
/// Counts memory as taken. False: there is not so much.
[[nodiscard]] bool take(physical* memory);
/// Gives back what was kept for descriptors that are gone now.
void settle();

/// What an offset for mmap through an open driver calls its bytes.
[[nodiscard]] u64 mmap_offset(const physical& memory);
/// The memory that an offset means, and where in it; null: it lies in the memory file.
[[nodiscard]] std::pair<const physical*, u64> memory_at(u64 offset);

struct dmabuf {
  u64 magic;
  u64 size;
  u32 gpu_id;
  u32 flags;
};
[[nodiscard]] int export_memory(physical* memory);  ///< a new descriptor; -1 and errno
[[nodiscard]] bool read_dmabuf(int descriptor, dmabuf* out);
[[nodiscard]] physical* import_memory(int descriptor,
                                      const dmabuf& shared);  ///< takes a reference; null: gone

}  // namespace kfdsim
