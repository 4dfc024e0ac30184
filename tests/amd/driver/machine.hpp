// A stand-in for what lies below AMD's user-space libraries: the amdgpu kernel driver and the GPUs' command
// processors.
//
// It is a library to preload. AMD's own libamdhip64 and libhsa-runtime64 run above it unmodified: they open
// /dev/kfd, read the topology from sysfs, call libdrm_amdgpu and write packets into queues, and everything of
// that is answered here.
//
//   machine.*    the GPUs, their memory, and what each of them may reach
//   kfd.*        the ioctls of /dev/kfd             svm.*      those of them that are about managed memory
//   events.*     events of the driver, signals of HSA
//   queues.cpp   AQL and SDMA packets               kernels.cpp  the kernels that AMD's libraries themselves
//   launch drm.cpp      libdrm_amdgpu's functions          libc.cpp     open, ioctl, mmap and others, led
//   here
//
// STANDIN_TOPOLOGY   the folder that stands for /sys/class/kfd/kfd/topology (topology.py writes it)
// STANDIN_ON_FAULT   "abort" (default: as on hardware, a page fault of a GPU ends the process) or "count"
// STANDIN_VERBOSE    1: what is refused; 2: all.  STANDIN_LOG: a file to write it into
#pragma once

#include <linux/kfd_ioctl.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace standin {

using u8 = uint8_t;
using u32 = uint32_t;
using u64 = uint64_t;

constexpr u64 kPage = 4096;
constexpr u64 kBigPage = 2 << 20;

constexpr u64 round_up(u64 value, u64 unit) { return (value + unit - 1) / unit * unit; }

// Level 0 is always written.
__attribute__((format(printf, 2, 3))) void log(int level, const char* format, ...);

struct Gpu {
  u32 id;
  u64 vram;
  int minor;  // of /dev/dri/renderD<minor>
  u32 device_id;
  u64 doorbells;  // offset of their pages in the memory file
  u64 used = 0, used_in_big_pages = 0;
  u32 doorbells_taken = 0;
};

// A piece of physical memory. All of it, of every GPU, lies in one sparse memory file of this process; memory
// of another process is in that one's file. Memory that the program registered lies where the program has it.
struct Buffer {
  u64 id, size;
  u32 flags;  // KFD_IOC_ALLOC_MEM_FLAGS_*
  u32 gpu;
  int file = -1;
  u64 offset = 0;
  u64 registered = 0;  // the program's own address, or 0
  bool counted = false;
  bool shareable = false;        // the file is this buffer's alone: its bytes live as long as a descriptor
  std::pair<u64, u64> origin{};  // of a shareable one: what the kernel calls the file
  int references = 1;
  char* view = nullptr;
};

// What the driver calls a handle: a buffer at an address, mapped by some GPUs.
struct Handle {
  Buffer* buffer;
  u64 address, size;
  std::set<u32> mapped;
};

// An entry of a GPU's page table.
struct Mapping {
  u64 size;
  Buffer* buffer;
  u64 offset;
  bool writable;
  u32 importer = 0;  // which import of libdrm made it, or 0
  bool readable = true;
};

struct SvmRange {
  u64 last;  // inclusive
  u32 preferred = KFD_IOCTL_SVM_LOCATION_UNDEFINED, prefetched = KFD_IOCTL_SVM_LOCATION_UNDEFINED;
  u64 access = 0, access_in_place = 0;  // one bit for each GPU
  u32 flags = KFD_IOCTL_SVM_FLAG_HOST_ACCESS | KFD_IOCTL_SVM_FLAG_COHERENT;
  u8 granularity = 9;
};

// The driver as one process sees it. A forked child is a new client and gets a new one.
struct Machine {
  pid_t process = 0;
  std::vector<Gpu> gpus;
  int memory = -1;
  u64 memory_end = 0;
  u64 host_limit = 0, host_used = 0;
  std::map<int, int> descriptors;  // open files of the driver -> kControl, or the GPU
  std::map<u64, Handle*> handles;
  u64 next_handle = 0x1000, next_buffer = 1;
  std::map<u64, Buffer*> buffers;
  std::map<std::pair<u64, u64>, Buffer*> shareable;
  std::vector<std::map<u64, Mapping>> page_tables;
  std::map<u64, SvmRange> svm;
  bool xnack = false;
  u64 faults = 0;

  u64 page_tables_take() const;
};

constexpr int kControl = -1;  // /dev/kfd
constexpr int kNotOurs = -2;

std::recursive_mutex& mutex();
Machine& machine();  // made on the first use; call it under the mutex
bool opened();       // whether this very process has used it
int gpu_of(u32 id);  // -1: there is none
std::string topology();
int driver_of(int descriptor);  // kControl, a GPU, or kNotOurs

Buffer* new_buffer(u64 size, u32 flags, u32 gpu);  // with memory of its own
Buffer* new_record(u64 size, u32 flags, u32 gpu);  // without
void put(Buffer* buffer);                          // gives a reference back
char* view(Buffer* buffer);                        // where this process sees its bytes

// What stands in the first page of a shareable buffer's file: memory on its way to another process, or to
// libdrm.
struct Token {
  u64 magic, size;
  u32 gpu, flags;
};
bool make_shareable(Buffer* buffer);  // of one without memory: gets a file of its own
int export_buffer(Buffer* buffer);    // a new descriptor, or -1
bool read_token(int descriptor, Token* token);
Buffer* import_buffer(int descriptor, const Token& token);  // takes a reference; null: no more files
u64 mmap_offset(const Buffer& buffer);  // what mmap through an open driver calls its bytes

// Bytes as a GPU sees them.
struct Run {
  char* bytes;  // null: a page fault
  u64 size;
};
Run reach(u32 gpu, u64 address, u64 wanted, bool write);
bool copy(u32 gpu, u64 to, u64 from, u64 size);
bool fill(u32 gpu, u64 to, const void* pattern, u64 pattern_size, u64 size);

}  // namespace standin
