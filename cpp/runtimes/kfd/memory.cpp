#include "memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string>

#include "backing.hpp"
#include "log.hpp"
#include "program_memory.hpp"

namespace kfdsim {
namespace {

constexpr u64 dmabuf_magic = 0x6675626d64736b66;

off_t at(u64 offset) { return static_cast<off_t>(offset); }

// A file that keeps its size: no process that has the descriptor makes another's access end beyond it.
constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

u64 end_of(const physical& memory) { return memory.place + round_up(memory.size, big_page_bytes); }

off_t offset_in_file(const physical& memory) { return memory.shareable ? 0 : at(memory.place); }

// The first place at or behind `from` with so many bytes; 0: there is none.
u64 gap_behind(u64 from, u64 size) {
  const auto& places = machine().places;
  auto next = places.lower_bound(from);
  if (next != places.begin()) from = std::max(from, end_of(*std::prev(next)->second));
  for (; next != places.end() && next->first - from < size; ++next) from = end_of(*next->second);
  return memory_file_bytes - from < size ? 0 : from;
}

// Gives the memory a place. Places are used in turn, so that an address whose memory was freed does not show
// the bytes of the next memory.
bool take_place(physical* memory) {
  auto& here = machine();
  memory->place = gap_behind(here.next_place, memory->size);
  if (!memory->place) memory->place = gap_behind(here.first_place, memory->size);
  if (!memory->place) return false;
  here.places[memory->place] = memory;
  here.next_place = end_of(*memory);
  return true;
}

bool lock(int descriptor, short type) {
  struct flock wanted {};
  wanted.l_type = type;
  wanted.l_whence = SEEK_SET;
  wanted.l_len = 1;
  return fcntl(descriptor, F_OFD_SETLK, &wanted) == 0;
}

// A descriptor of its own of a process's open file, with the lock that keeps the memory; -1 and errno.
int opened_again(pid_t process, int descriptor) {
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(descriptor);
  const int opened = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path.c_str(), O_RDWR | O_CLOEXEC, 0));
  if (opened >= 0 && !lock(opened, F_RDLCK)) {
    const int error = errno;
    syscall(SYS_close, opened);
    errno = error;
    return -1;
  }
  return opened;
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

bool is_backed_by_host(const physical& memory) { return !(memory.flags & memory_vram) && !memory.registered; }

void uncount(const physical& memory) {
  auto& here = machine();
  if (memory.flags & memory_vram) {
    here.gpus[memory.gpu].used -= memory.size;
    here.gpus[memory.gpu].used_in_big_pages -= round_up(memory.size, big_page_bytes);
  }
  if (is_of_host(memory)) here.host_used -= memory.size;
  if (is_backed_by_host(memory)) here.host_backed -= memory.size;
}

// Where this process sees bytes of the memory file.
struct seen {
  u64 address, size, offset;
  int protection;
};

std::vector<seen> seen_between(u64 first, u64 end) {
  std::vector<seen> found;
  struct stat file {};
  if (status_of(machine().memory, &file) != 0) return found;
  map_reader maps;
  for (map_line line; maps.next(&line);) {
    if (line.inode != file.st_ino || std::strncmp(line.path, "/memfd:kfdsim-memory", 20) != 0) continue;
    const u64 low = std::max(line.offset, first);
    const u64 high = std::min(line.offset + (line.end - line.begin), end);
    if (low < high) found.push_back({line.begin + (low - line.offset), high - low, low, line.protection});
  }
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
  const u64 first = memory->place, end = first + memory->size;
  const char* const bytes = view(memory);
  if (!bytes || !make_shareable(memory)) return false;
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
  } else if (memory->counted && memory->place) {
    fallocate(memory->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at(memory->place), at(memory->size));
  }
  here.places.erase(memory->place);
  delete memory;
}

}  // namespace

physical* new_record(u64 size, u32 flags, u32 gpu) {
  auto* const memory = new physical;
  memory->size = size;
  memory->flags = flags;
  memory->gpu = gpu;
  return memory;
}

bool make_present(physical* memory) {
  if (!take_place(memory)) return false;
  memory->file = machine().memory;
  return true;
}

bool make_shareable(physical* memory) {
  dmabuf shared{};
  shared.magic = dmabuf_magic;
  shared.size = memory->size;
  shared.gpu_id = machine().gpus[memory->gpu].id;
  shared.flags = memory->flags;
  const int file =
      static_cast<int>(syscall(SYS_memfd_create, "kfdsim-dmabuf", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file < 0) return false;
  struct stat named {};
  if (ftruncate(file, at(memory->size + page_bytes)) != 0 ||
      pwrite(file, &shared, sizeof shared, at(memory->size)) != static_cast<ssize_t>(sizeof shared) ||
      fcntl(file, F_ADD_SEALS, seals) != 0 || status_of(file, &named) != 0 ||
      (!memory->place && !take_place(memory))) {
    const int error = errno;
    syscall(SYS_close, file);
    errno = error;
    return false;
  }
  memory->file = file;
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
  if (is_backed_by_host(*memory)) {
    if (here.host_backed + memory->size > backing_limit()) {
      log(0, "%llu bytes of host memory are refused: this machine itself has %llu bytes, and %llu are taken",
          static_cast<unsigned long long>(memory->size), static_cast<unsigned long long>(backing_limit()),
          static_cast<unsigned long long>(here.host_backed));
      return false;
    }
    here.host_backed += memory->size;
  }
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
                            memory->file, offset_in_file(*memory));
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

bool read_bytes(const physical& memory, u64 inside, u64 size, char* to) {
  const off_t begin = offset_in_file(memory) + at(inside);
  for (u64 done = 0; done < size;) {
    const auto got = pread(memory.file, to + done, size - done, begin + at(done));
    if (got <= 0) return false;
    done += static_cast<u64>(got);
  }
  return true;
}

std::optional<file_part> file_at(u64 place, u64 size) {
  auto& here = machine();
  if (place < here.first_place)  // doorbells
    return size <= here.first_place - place ? std::optional(file_part{here.memory, at(place)}) : std::nullopt;
  const auto next = here.places.upper_bound(place);
  if (next == here.places.begin()) return std::nullopt;
  const physical& memory = *std::prev(next)->second;
  const u64 inside = place - memory.place, whole = round_up(memory.size, page_bytes);
  if (inside >= whole || size > whole - inside) return std::nullopt;
  return file_part{memory.file, offset_in_file(memory) + at(inside)};
}

int export_memory(physical* memory) {
  if (!memory->shareable && !move_to_own_file(memory)) return -1;
  return opened_again(getpid(), memory->file);
}

bool read_dmabuf(int descriptor, dmabuf* out) {
  struct stat file {};
  if (status_of(descriptor, &file) != 0 || (fcntl(descriptor, F_GET_SEALS) & seals) != seals) return false;
  const off_t described_at = file.st_size - off_t{page_bytes};
  return pread(descriptor, out, sizeof *out, described_at) == static_cast<ssize_t>(sizeof *out) &&
         out->magic == dmabuf_magic && out->size && at(out->size) == described_at;
}

bool write_dmabuf(const physical& memory, const dmabuf& shared) {
  return pwrite(memory.file, &shared, sizeof shared, at(memory.size)) == static_cast<ssize_t>(sizeof shared);
}

physical* import_memory(int descriptor, const dmabuf& shared) {
  auto& here = machine();
  struct stat named {};
  const int gpu = gpu_of(shared.gpu_id);
  if (gpu < 0 || status_of(descriptor, &named) != 0) return nullptr;
  if (const auto known = here.shareable.find(named.st_ino); known != here.shareable.end()) {
    auto& kept = here.only_exported;
    kept.erase(std::remove(kept.begin(), kept.end(), known->second), kept.end());
    ++known->second->references;
    return known->second;
  }
  const int kept = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);  // the same open file, and so the same lock
  if (kept < 0) return nullptr;
  auto* const memory = new_record(shared.size, shared.flags, static_cast<u32>(gpu));
  if (!take_place(memory)) {
    syscall(SYS_close, kept);
    delete memory;
    return nullptr;
  }
  memory->file = kept;
  memory->shareable = memory->foreign = true;
  memory->inode = named.st_ino;
  here.shareable[memory->inode] = memory;
  return memory;
}

// The name says where the file is, and which it is: a number of a descriptor may be another file's later.
bool name_memory(physical* memory, u32 flags, u32 (&name)[4]) {
  dmabuf shared{};
  if (!memory->shareable && !move_to_own_file(memory)) return false;
  if (!read_dmabuf(memory->file, &shared)) return false;
  shared.flags_of_export = flags;
  if (!write_dmabuf(*memory, shared)) return false;
  name[0] = static_cast<u32>(getpid());
  name[1] = static_cast<u32>(memory->file);
  name[2] = static_cast<u32>(memory->inode);
  name[3] = static_cast<u32>(memory->inode >> 32);
  return true;
}

int open_named(const u32 (&name)[4]) {
  const int descriptor = opened_again(static_cast<pid_t>(name[0]), static_cast<int>(name[1]));
  struct stat file {};
  if (descriptor >= 0 && status_of(descriptor, &file) == 0 && file.st_ino == (name[2] | u64{name[3]} << 32))
    return descriptor;
  if (descriptor >= 0) syscall(SYS_close, descriptor);
  return -1;
}

}  // namespace kfdsim
