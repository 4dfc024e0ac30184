// Physical memory: where it is, how much is used, and how another process or libdrm gets it.
//
// A DMA-BUF is a descriptor of the memory's own file, whose last page describes it. Each export opens that
// file again and locks it: the kernel keeps the lock while any process has that descriptor, or has imported
// it.
#pragma once

#include <optional>

#include "machine.hpp"

namespace kfdsim {

/// A record without memory.
[[nodiscard]] physical* new_record(u64 size, u32 flags, u32 gpu);
/// Gives a record a part of the memory file; nothing is written, so it uses no memory yet. Returns false if
/// there is no place for it.
[[nodiscard]] bool make_present(physical* memory);
/// Gives a record a file of its own. Returns false, and errno, if that fails.
[[nodiscard]] bool make_shareable(physical* memory);
/// Drops a reference. The memory is freed with the last reference and the last descriptor.
void put(physical* memory);
/// Maps the memory in this process; null if that fails.
[[nodiscard]] char* view(physical* memory);
/// Counts memory as used. Returns false if there is not enough.
[[nodiscard]] bool take(physical* memory);
/// Frees memory that was kept only for descriptors that are closed now.
void free_unshared();

/// Reads bytes of a memory with a file. What was never written takes no memory by that, as it would in a
/// view.
[[nodiscard]] bool read_bytes(const physical& memory, u64 inside, u64 size, char* to);

/// What mmap with a descriptor of the driver shows.
struct file_part {
  int file;
  off_t offset;
};
/// Nothing where no memory has so many bytes at that place.
[[nodiscard]] std::optional<file_part> file_at(u64 place, u64 size);

/// The description of a memory that has a file of its own.
struct dmabuf {
  u64 magic;
  u64 size;
  u32 gpu_id;
  u32 flags;
  u32 flags_of_export;  ///< of the ioctl ipc_export_handle
  amdgpu_bo_metadata metadata;
};
[[nodiscard]] int export_memory(physical* memory);  ///< a new descriptor; -1 and errno
[[nodiscard]] bool read_dmabuf(int descriptor, dmabuf* out);
/// For everyone who has the memory. Returns false, and errno, if that fails.
[[nodiscard]] bool write_dmabuf(const physical& memory, const dmabuf& shared);
[[nodiscard]] physical* import_memory(int descriptor,
                                      const dmabuf& shared);  ///< adds a reference; null: it failed

/// Names a memory of this process to other processes of this user. Returns false, and errno, if that fails.
[[nodiscard]] bool name_memory(physical* memory, u32 flags, u32 (&name)[4]);
/// A new descriptor of a memory that a process named; -1: there is no such memory.
[[nodiscard]] int open_named(const u32 (&name)[4]);

}  // namespace kfdsim
