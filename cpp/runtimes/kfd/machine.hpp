// A stand-in for the layer below AMD's user-space libraries: the amdgpu kernel driver, and the GPUs' command
// processors. It is a library to preload; libamdhip64 and libhsa-runtime64 run on it unmodified.
//
//   libc.cpp     replaces ioctl, mmap and others of the C library
//   files.*      replaces open, stat and others    render.*       the ioctls of a render node
//   ioctls.*     the ioctls of /dev/kfd            managed.*      the ioctls for managed memory
//   drm.cpp      libdrm_amdgpu's functions         events.*       events of the driver, signals of HSA
//   queues.*     aql.cpp and sdma.cpp: packets     kernels.*      the kernels that AMD's libraries launch
//   machine.*    the GPUs and all that is alive    memory.*       physical memory, shared between processes
//   page_tables.*  what a GPU can access           faults.*       rules of KFDSIM_FAIL
//   launches.*  KFDSIM_REFUSE_KERNELS
//   program_memory.*  the program's own memory     backing.*      what this machine itself can back
//   ledger.*, tools.cpp   kfdsim.h
//
// This file: the driver as one process sees it. All of it is used under mutex().
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <array>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "abi.hpp"

#define KFDSIM_EXPORT extern "C" __attribute__((visibility("default")))

namespace kfdsim {

inline constexpr u64 page_bytes = 4096;
inline constexpr u64 big_page_bytes = 2 << 20;
inline constexpr u64 doorbell_bytes = 2 * page_bytes;
inline constexpr u64 memory_file_bytes = 1ull << 47;  ///< as much as a process can map; it is sparse

constexpr u64 round_up(u64 value, u64 unit) { return (value + unit - 1) / unit * unit; }

struct gpu_state {
  u32 id = 0;
  std::string name;
  u64 bytes = 0;
  int minor = 0;  ///< of /dev/dri/renderD<minor>
  u32 device_id = 0;
  bool integrated = false;  ///< an APU: its memory is the host's
  u32 compute_units = 0;
  u64 engine_khz = 0;
  u64 memory_khz = 0;
  u32 memory_bits = 0;
  u64 doorbells = 0;  ///< the place of their pages in the memory file
  u64 used = 0;
  u64 used_in_big_pages = 0;
  std::set<u32> doorbells_taken;
};

/// A piece of physical memory. Most memory of all GPUs is in one sparse memory file of this process. Virtual
/// memory has files of its own, which other processes can open too, and so has exported memory. Registered
/// memory stays at the program's address.
struct physical {
  u64 size = 0;
  u32 flags = 0;  ///< memory_flag
  u32 gpu = 0;
  int file = -1;
  u64 place = 0;       ///< the offset for mmap with a descriptor of the driver; also that in the memory file
  u64 registered = 0;  ///< the program's own address, or 0
  bool counted = false;
  bool shareable = false;  ///< has a file of its own: its bytes live as long as a descriptor
  bool foreign = false;    ///< another process made it
  u64 inode = 0;           ///< of a file of its own
  int references = 1;
  char* view = nullptr;
};

/// The memory of a driver's handle: at an address, mapped by some GPUs.
struct allocation {
  physical* memory = nullptr;
  u64 address = 0;
  u64 size = 0;
  std::set<u32> mapped;
};

/// An entry of a GPU's page table.
struct mapping {
  u64 size = 0;
  physical* memory = nullptr;
  u64 offset = 0;
  bool readable = true;
  bool writable = true;
  u32 import = 0;  ///< which import of libdrm made it, or 0
};
using page_table = std::map<u64, mapping>;

/// What a GPU wants to do with memory.
enum class right : u8 { read, write };

struct managed_range {
  u64 last = 0;  ///< inclusive
  u32 preferred = svm_location_undefined;
  u32 prefetched = svm_location_undefined;
  u64 access = 0;  ///< one bit for each GPU
  u64 access_in_place = 0;
  u32 flags = svm_flag_host_access | svm_flag_coherent;
  u8 granularity = 9;
};

/// Memory imported by libdrm: its amdgpu_bo.
struct drm_import {
  physical* memory = nullptr;
  u32 gpu = 0;
  u32 number = 0;
};

inline constexpr int control = -1;  ///< /dev/kfd, in place of a GPU's number
inline constexpr int not_driver = -2;
inline constexpr int of_parent = -3;  ///< opened before a fork

/// An open file of the driver. Its inode says whether the descriptor is still that file, and which others dup
/// made of it.
struct open_driver_file {
  int driver = control;
  dev_t device = 0;
  ino_t inode = 0;

  [[nodiscard]] bool is(const struct stat& file) const {
    return file.st_ino == inode && file.st_dev == device;
  }
};

struct machine_state {
  pid_t process = 0;
  std::vector<gpu_state> gpus;
  int memory = -1;                  ///< the memory file
  u64 first_place = 0;              ///< behind the doorbells
  u64 next_place = 0;               ///< where a place is looked for first
  std::map<u64, physical*> places;  ///< taken ones
  u64 host_bytes = 0;               ///< of the profile
  u64 host_limit = 0;
  u64 host_used = 0;
  u64 host_backed = 0;  ///< of it, what this machine must back: no memory of GPUs, nothing registered
  bool xnack = false;
  std::map<int, open_driver_file> descriptors;
  std::map<u64, allocation> allocations;
  u64 next_handle = 0x1000;
  std::map<u64, physical*> shareable;    ///< by inode
  std::vector<physical*> only_exported;  ///< freed here, kept by a descriptor or another process
  std::vector<page_table> page_tables;
  std::map<u64, managed_range> managed;
  std::map<u32, drm_import*> imports;
  u64 page_faults = 0;
  u64 kernels_not_run = 0;
  u64 kernels_refused = 0;

  /// Bytes of each GPU that the kernel reserves for page tables.
  [[nodiscard]] u64 page_tables_take() const;
};

[[nodiscard]] std::recursive_mutex& mutex();
/// Created on first use. A forked child gets a new one.
[[nodiscard]] machine_state& machine();
/// Whether this very process has used it.
[[nodiscard]] bool opened();
/// The index of the GPU with this id; -1: there is none.
[[nodiscard]] int gpu_of(u32 id);
/// The folder that describes the machine: KFDSIM_MACHINE.
[[nodiscard]] const std::string& folder();
/// Opens a new descriptor of control or a GPU; -1 and errno.
[[nodiscard]] int open_driver(int driver);
/// fstat by a system call: this library's own asks what a descriptor is.
[[nodiscard]] int status_of(int descriptor, struct stat* out);
/// What a descriptor is: control, a GPU, of_parent or not_ours.
[[nodiscard]] int driver_of(int descriptor);

}  // namespace kfdsim
