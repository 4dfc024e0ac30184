#include "memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "log.hpp"

namespace kfdsim {
namespace {

constexpr u64 dmabuf_magic = 0x6675626d64736b66;

off_t at(u64 offset) { return static_cast<off_t>(offset); }

// In an offset for mmap: this bit, the memory's id, and an offset in it. Without the bit it is an offset in
// the memory file.
constexpr u64 own_file = 1ull << 62;
constexpr int id_shift = 40;

bool lock(int descriptor, short type) {
  struct flock wanted {};
  wanted.l_type = type;
  wanted.l_whence = SEEK_SET;
  wanted.l_len = 1;
  return fcntl(descriptor, F_OFD_SETLK, &wanted) == 0;
}

int opened_again(int descriptor) {
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path.c_str(), O_RDWR | O_CLOEXEC, 0));
}

// Whether any process has a descriptor or an import of it.
bool held_elsewhere(const physical& memory) {
  if (!memory.shareable || memory.foreign) return false;
  if (!lock(memory.file, F_WRLCK)) return true;
  lock(memory.file, F_UNLCK);
  return false;
}

// Memory of an APU is both.
bool is_of_host(const physical& memory) {
  return !(memory.flags & memory_vram) || machine().gpus[memory.gpu].integrated;
}

void uncount(const physical& memory) {
  auto& here = machine();
  if (memory.flags & memory_vram) {
    here.gpus[memory.gpu].used -= memory.size;
    here.gpus[memory.gpu].used_in_big_pages -= round_up(memory.size, big_page_bytes);
  }
  if (is_of_host(memory)) here.host_used -= memory.size;
}

// Where this process sees bytes of the memory file.
struct seen {
  u64 address, size, offset;
  int protection;
};

std::vector<seen> seen_between(u64 first, u64 end) {
  std::vector<seen> found;
  struct stat file {};
  FILE* const maps = fopen("/proc/self/maps", "re");
  if (!maps || fstat(machine().memory, &file) != 0) return found;
  char line[512];
  while (fgets(line, sizeof line, maps)) {
    char* rest = line;  // begin-last rights offset device inode path
    const u64 begin = std::strtoull(rest, &rest, 16);
    const u64 last = std::strtoull(rest + 1, &rest, 16);
    const char* const rights = rest + 1;
    const u64 offset = std::strtoull(rights + std::strlen("rwxp"), &rest, 16);
    rest = std::strchr(rest + 1, ' ');
    const bool is_ours =
        rest && std::strtoull(rest, nullptr, 10) == file.st_ino && std::strstr(rest, "memfd:kfdsim-memory");
    if (!is_ours) continue;
    const u64 low = std::max<u64>(offset, first), high = std::min<u64>(offset + (last - begin), end);
    if (low >= high) continue;
    const int protection = (rights[0] == 'r' ? PROT_READ : 0) | (rights[1] == 'w' ? PROT_WRITE : 0) |
                           (rights[2] == 'x' ? PROT_EXEC : 0);
    found.push_back({begin + (low - offset), high - low, low, protection});
  }
  fclose(maps);
  return found;
}

// What was written of the memory file between two offsets, into another file.
bool copy_written(u64 first, u64 end, const char* bytes, int to) {
  const int from = machine().memory;
  const auto last = static_cast<off_t>(end);
  for (off_t data = lseek(from, at(first), SEEK_DATA); data >= 0 && data < last;
       data = lseek(from, data, SEEK_DATA)) {
    const off_t hole = std::min(lseek(from, data, SEEK_HOLE), last);
    while (data < hole) {
      const u64 inside = static_cast<u64>(data) - first;
      const auto done = pwrite(to, bytes + inside, static_cast<u64>(hole - data), at(inside));
      if (done < 0) return false;
      data += done;
    }
  }
  return true;
}

// Memory of the memory file gets a file of its own, seen wherever it was seen before: a descriptor of it must
// not give away all else. What the program writes at this very moment may be lost, which no program can rely
// on.
bool move_to_own_file(physical* memory) {
  const u64 first = memory->offset, end = first + memory->size;
  const char* const bytes = view(memory);
  if (!bytes || !make_shareable(memory)) return false;
  memory->moved_from = first;
  bool done = copy_written(first, end, bytes, memory->file);
  for (const auto& one : seen_between(first, end)) {
    void* const address = reinterpret_cast<void*>(one.address);
    const off_t offset = at(one.offset - first);
    const auto mapped = syscall(SYS_mmap, address, one.size, one.protection,
                                MAP_SHARED | MAP_FIXED | MAP_NORESERVE, memory->file, offset);
    done = done && mapped != -1;
    madvise(address, one.size, MADV_DONTFORK);
  }
  if (!done) log(0, "memory cannot be exported whole: %s", std::strerror(errno));
  fallocate(machine().memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at(first), at(memory->size));
  return done;
}

void drop(physical* memory) {
  auto& here = machine();
  if (memory->counted) uncount(*memory);
  if (memory->shareable) {
    syscall(SYS_close, memory->file);
    here.shareable.erase(memory->inode);
  } else if (memory->counted && !memory->registered) {
    fallocate(memory->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at(memory->offset), at(memory->size));
  }
  here.memories.erase(memory->id);
  delete memory;
}

}  // namespace

physical* new_record(u64 size, u32 flags, u32 gpu) {
  auto* const memory = new physical;
  memory->id = machine().next_memory++;
  memory->size = size;
  memory->flags = flags;
  memory->gpu = gpu;
  machine().memories[memory->id] = memory;
  return memory;
}

physical* new_memory(u64 size, u32 flags, u32 gpu) {
  auto& here = machine();
  auto* const memory = new_record(size, flags, gpu);
  memory->file = here.memory;
  memory->offset = round_up(here.memory_end, big_page_bytes);
  here.memory_end = memory->offset + size;
  return memory;
}

bool make_shareable(physical* memory) {
  const dmabuf shared{dmabuf_magic, memory->size, machine().gpus[memory->gpu].id, memory->flags};
  const int file = static_cast<int>(syscall(SYS_memfd_create, "kfdsim-dmabuf", MFD_CLOEXEC));
  if (file < 0) return false;
  struct stat named {};
  if (ftruncate(file, at(memory->size + page_bytes)) != 0 ||
      pwrite(file, &shared, sizeof shared, at(memory->size)) != static_cast<ssize_t>(sizeof shared) ||
      fstat(file, &named) != 0) {
    const int error = errno;
    syscall(SYS_close, file);
    errno = error;
    return false;
  }
  memory->file = file;
  memory->offset = 0;
  memory->shareable = true;
  memory->inode = named.st_ino;
  machine().shareable[memory->inode] = memory;
  return true;
}

bool take(physical* memory) {
  free_unshared();
  auto& here = machine();
  auto& gpu = here.gpus[memory->gpu];
  const bool of_host = is_of_host(*memory), of_gpu = (memory->flags & memory_vram) != 0;
  if (of_host && here.host_used + memory->size > here.host_limit) return false;
  if (of_gpu && gpu.used + here.page_tables_take() + memory->size > gpu.bytes) return false;
  if (of_host) here.host_used += memory->size;
  if (of_gpu) {
    gpu.used += memory->size;
    gpu.used_in_big_pages += round_up(memory->size, big_page_bytes);
  }
  memory->counted = true;
  return true;
}

char* view(physical* memory) {
  if (memory->registered) return reinterpret_cast<char*>(memory->registered);
  if (!memory->view) {
    void* const seen = mmap(nullptr, memory->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                            memory->file, at(memory->offset));
    if (seen == MAP_FAILED) {
      log(0, "cannot map memory of %llu bytes: %s", static_cast<unsigned long long>(memory->size),
          std::strerror(errno));
      return nullptr;
    }
    madvise(seen, memory->size, MADV_DONTFORK);
    memory->view = static_cast<char*>(seen);
  }
  return memory->view;
}

void put(physical* memory) {
  if (--memory->references > 0) return;
  if (memory->view) munmap(memory->view, memory->size);
  memory->view = nullptr;
  if (!memory->foreign && held_elsewhere(*memory)) {
    machine().only_exported.push_back(memory);
  } else {
    drop(memory);
  }
}

void free_unshared() {
  auto& kept = machine().only_exported;
  const auto gone = std::partition(kept.begin(), kept.end(),
                                   [](const physical* memory) { return held_elsewhere(*memory); });
  const std::vector<physical*> dropped(gone, kept.end());
  kept.erase(gone, kept.end());
  for (auto* const memory : dropped) drop(memory);
}

u64 mmap_offset(const physical& memory) {
  return memory.shareable ? own_file | memory.id << id_shift : memory.offset;
}

std::pair<const physical*, u64> memory_at(u64 offset) {
  if (!(offset & own_file)) {
    for (const auto& [inode, memory] : machine().shareable) {
      if (memory->moved_from && offset - memory->moved_from < memory->size)
        return {memory, offset - memory->moved_from};
    }
    return {nullptr, offset};
  }
  const auto found = machine().memories.find((offset & ~own_file) >> id_shift);
  const u64 inside = offset % (1ull << id_shift);
  return {found == machine().memories.end() ? nullptr : found->second, inside};
}

int export_memory(physical* memory) {
  if (!memory->shareable && !move_to_own_file(memory)) return -1;
  const int descriptor = opened_again(memory->file);
  if (descriptor >= 0 && !lock(descriptor, F_RDLCK)) {
    const int error = errno;
    syscall(SYS_close, descriptor);
    errno = error;
    return -1;
  }
  return descriptor;
}

bool read_dmabuf(int descriptor, dmabuf* out) {
  struct stat file {};
  if (fstat(descriptor, &file) != 0) return false;
  return pread(descriptor, out, sizeof *out, file.st_size - off_t{page_bytes}) ==
             static_cast<ssize_t>(sizeof *out) &&
         out->magic == dmabuf_magic;
}

physical* import_memory(int descriptor, const dmabuf& shared) {
  auto& here = machine();
  struct stat named {};
  const int gpu = gpu_of(shared.gpu_id);
  if (gpu < 0 || fstat(descriptor, &named) != 0) return nullptr;
  if (const auto known = here.shareable.find(named.st_ino); known != here.shareable.end()) {
    auto& kept = here.only_exported;
    kept.erase(std::remove(kept.begin(), kept.end(), known->second), kept.end());
    ++known->second->references;
    return known->second;
  }
  const int kept = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);  // the same open file, and so the same lock
  if (kept < 0) return nullptr;
  auto* const memory = new_record(shared.size, shared.flags, static_cast<u32>(gpu));
  memory->file = kept;
  memory->shareable = memory->foreign = true;
  memory->inode = named.st_ino;
  here.shareable[memory->inode] = memory;
  return memory;
}

}  // namespace kfdsim
