#include "machine.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "events.hpp"
#include "svm.hpp"

namespace standin {

namespace {

constexpr u64 kFirstOffset = 1 << 20;
constexpr off_t kMemoryFile = off_t{1} << 45;   // sparse: only what is written takes memory
constexpr u64 kShareableOffset = u64{1} << 46;  // set in offsets for mmap of what has a file of its own
constexpr u64 kDoorbellPages = 2 * kPage;
constexpr u64 kMagic = 0x6e692d646e617473;

Machine* the_machine = nullptr;  // never destroyed: threads look at it while the process exits

int verbosity() {
  static const int level = [] {
    const char* text = getenv("STANDIN_VERBOSE");
    return text ? atoi(text) : 0;
  }();
  return level;
}

u64 property(const std::string& path, const char* name) {
  FILE* file = fopen(path.c_str(), "r");
  if (!file) return 0;
  char key[256];
  unsigned long long value;
  u64 found = 0;
  while (fscanf(file, "%255s %llu", key, &value) == 2)
    if (!strcmp(key, name)) found = value;
  fclose(file);
  return found;
}

// Reads the topology's nodes; the one without a GPU id is the host.
void read_topology(Machine* made) {
  for (int node = 0;; node++) {
    const std::string folder = topology() + "/nodes/" + std::to_string(node);
    FILE* file = fopen((folder + "/gpu_id").c_str(), "r");
    if (!file) break;
    unsigned id = 0;
    if (fscanf(file, "%u", &id) != 1) id = 0;
    fclose(file);
    const u64 memory = property(folder + "/mem_banks/0/properties", "size_in_bytes");
    if (!id) {
      made->host_limit += memory / 16 * 15;
      continue;
    }
    Gpu gpu{};
    gpu.id = id;
    gpu.vram = memory;
    gpu.minor = static_cast<int>(property(folder + "/properties", "drm_render_minor"));
    gpu.device_id = static_cast<u32>(property(folder + "/properties", "device_id"));
    gpu.doorbells = made->memory_end = round_up(made->memory_end, kDoorbellPages);
    made->memory_end += kDoorbellPages;
    made->gpus.push_back(gpu);
  }
  made->page_tables.resize(made->gpus.size());
}

Machine* new_machine() {
  auto* made = new Machine;
  made->process = getpid();
  made->memory = static_cast<int>(syscall(SYS_memfd_create, "standin-memory", MFD_CLOEXEC));
  made->memory_end = kFirstOffset;
  if (ftruncate(made->memory, kMemoryFile)) log(0, "no memory file: %s", strerror(errno));
  read_topology(made);
  return made;
}

// A child must not find the mutex held by a thread that it does not have.
void renew_mutex() { new (&mutex()) std::recursive_mutex; }

}  // namespace

void log(int level, const char* format, ...) {
  if (level > verbosity()) return;
  static FILE* const file = [] {
    const char* path = getenv("STANDIN_LOG");
    FILE* opened = path ? fopen(path, "a") : nullptr;
    return opened ? opened : stderr;
  }();
  va_list arguments;
  va_start(arguments, format);
  fprintf(file, "stand-in[%d]: ", getpid());
  vfprintf(file, format, arguments);
  fputc('\n', file);
  fflush(file);
  va_end(arguments);
}

std::recursive_mutex& mutex() {
  static auto* const made = [] {
    pthread_atfork([] { mutex().lock(); }, [] { mutex().unlock(); }, renew_mutex);
    return new std::recursive_mutex;
  }();
  return *made;
}

Machine& machine() {
  if (!opened()) {
    the_machine = new_machine();
    forget_events();
    forget_queues();
  }
  return *the_machine;
}

// Also false in a child of vfork, which shares this memory and must leave it alone.
bool opened() { return the_machine && the_machine->process == getpid(); }

std::string topology() {
  const char* folder = getenv("STANDIN_TOPOLOGY");
  return folder ? folder : "topology";
}

int gpu_of(u32 id) {
  const auto& gpus = machine().gpus;
  for (size_t i = 0; i < gpus.size(); i++)
    if (gpus[i].id == id) return static_cast<int>(i);
  return -1;
}

int driver_of(int descriptor) {
  if (descriptor < 0 || !opened()) return kNotOurs;
  std::lock_guard lock(mutex());
  const auto found = machine().descriptors.find(descriptor);
  return found == machine().descriptors.end() ? kNotOurs : found->second;
}

// As the kernel counts it: memory that it keeps for page tables.
u64 Machine::page_tables_take() const {
  u64 largest = 0;
  for (const Gpu& gpu : gpus) largest = std::max(largest, gpu.vram);
  return std::max<u64>(largest >> 14, 2 << 20) + (8 << 20);
}

// ------------------------------------------------------------------------------------------------ buffers

Buffer* new_record(u64 size, u32 flags, u32 gpu) {
  auto* buffer = new Buffer;
  buffer->id = machine().next_buffer++;
  buffer->size = size;
  buffer->flags = flags;
  buffer->gpu = gpu;
  machine().buffers[buffer->id] = buffer;
  return buffer;
}

Buffer* new_buffer(u64 size, u32 flags, u32 gpu) {
  Machine& here = machine();
  Buffer* buffer = new_record(size, flags, gpu);
  buffer->file = here.memory;
  buffer->offset = round_up(here.memory_end, kBigPage);
  here.memory_end = buffer->offset + size;
  return buffer;
}

char* view(Buffer* buffer) {
  if (buffer->registered) return reinterpret_cast<char*>(buffer->registered);
  if (!buffer->view) {
    void* at = mmap(nullptr, buffer->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, buffer->file,
                    static_cast<off_t>(buffer->offset));
    if (at == MAP_FAILED) {
      log(0, "a buffer of %llu bytes cannot be seen: %s", static_cast<unsigned long long>(buffer->size),
          strerror(errno));
      return nullptr;
    }
    madvise(at, buffer->size, MADV_DONTFORK);
    buffer->view = static_cast<char*>(at);
  }
  return buffer->view;
}

void put(Buffer* buffer) {
  if (--buffer->references) return;
  Machine& here = machine();
  if (buffer->view) munmap(buffer->view, buffer->size);
  if (buffer->counted && (buffer->flags & KFD_IOC_ALLOC_MEM_FLAGS_VRAM)) {
    here.gpus[buffer->gpu].used -= buffer->size;
    here.gpus[buffer->gpu].used_in_big_pages -= round_up(buffer->size, kBigPage);
  } else if (buffer->counted) {
    here.host_used -= buffer->size;
  }
  if (buffer->counted && !buffer->registered && buffer->file == here.memory)
    fallocate(buffer->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(buffer->offset),
              static_cast<off_t>(buffer->size));
  if (buffer->shareable) {
    syscall(SYS_close, buffer->file);
    here.shareable.erase(buffer->origin);
  }
  here.buffers.erase(buffer->id);
  delete buffer;
}

namespace {

// The kernel's name of the file that is behind a descriptor.
bool origin_of(int descriptor, std::pair<u64, u64>* origin) {
  struct stat status;
  if (fstat(descriptor, &status)) return false;
  *origin = {status.st_dev, status.st_ino};
  return true;
}

}  // namespace

bool make_shareable(Buffer* buffer) {
  const Token token{kMagic, buffer->size, buffer->gpu, buffer->flags};
  const int file = static_cast<int>(syscall(SYS_memfd_create, "standin-dmabuf", MFD_CLOEXEC));
  if (file < 0) return false;
  if (ftruncate(file, static_cast<off_t>(kPage + buffer->size)) ||
      pwrite(file, &token, sizeof token, 0) != static_cast<ssize_t>(sizeof token) ||
      !origin_of(file, &buffer->origin)) {
    syscall(SYS_close, file);
    return false;
  }
  buffer->file = file;
  buffer->offset = kPage;
  buffer->shareable = true;
  machine().shareable[buffer->origin] = buffer;
  return true;
}

int export_buffer(Buffer* buffer) {
  return static_cast<int>(syscall(SYS_fcntl, buffer->file, F_DUPFD_CLOEXEC, 0));
}

bool read_token(int descriptor, Token* token) {
  return pread(descriptor, token, sizeof *token, 0) == static_cast<ssize_t>(sizeof *token) &&
         token->magic == kMagic;
}

Buffer* import_buffer(int descriptor, const Token& token) {
  Machine& here = machine();
  std::pair<u64, u64> origin;
  if (!origin_of(descriptor, &origin)) return nullptr;
  if (const auto known = here.shareable.find(origin); known != here.shareable.end()) {
    known->second->references++;
    return known->second;
  }
  const int file = static_cast<int>(syscall(SYS_fcntl, descriptor, F_DUPFD_CLOEXEC, 0));
  if (file < 0) return nullptr;
  Buffer* buffer = new_record(token.size, token.flags, token.gpu);
  buffer->file = file;
  buffer->offset = kPage;
  buffer->shareable = true;
  buffer->origin = origin;
  here.shareable[origin] = buffer;
  return buffer;
}

u64 mmap_offset(const Buffer& buffer) {
  return buffer.shareable ? kShareableOffset | buffer.id * kPage : buffer.offset;
}

// ------------------------------------------------------------------------------------------------ what a GPU
// reaches

namespace {

Run page_fault(u32 gpu, u64 address, bool write, const char* reason) {
  machine().faults++;
  log(0, "Memory access fault by GPU %u on address %#llx (%s). Reason: %s", gpu,
      static_cast<unsigned long long>(address), write ? "write" : "read", reason);
  const char* wanted = getenv("STANDIN_ON_FAULT");
  if (!wanted || strcmp(wanted, "count")) abort();
  return {nullptr, 0};
}

}  // namespace

Run reach(u32 gpu, u64 address, u64 wanted, bool write) {
  const auto& table = machine().page_tables[gpu];
  auto entry = table.upper_bound(address);
  if (entry != table.begin() && address < std::prev(entry)->first + std::prev(entry)->second.size) {
    --entry;
    const Mapping& mapping = entry->second;
    if (!write && !mapping.readable) return page_fault(gpu, address, write, "page without rights");
    if (write && !mapping.writable) return page_fault(gpu, address, write, "read-only page");
    char* bytes = view(mapping.buffer);
    const u64 inside = address - entry->first;
    return {bytes ? bytes + mapping.offset + inside : nullptr, std::min(wanted, mapping.size - inside)};
  }
  if (svm_accessible(gpu, address)) {
    const u64 left_in_page = kPage - address % kPage;
    return {reinterpret_cast<char*>(address), std::min(wanted, left_in_page)};
  }
  return page_fault(gpu, address, write, "page not present");
}

bool copy(u32 gpu, u64 to, u64 from, u64 size) {
  while (size) {
    const Run target = reach(gpu, to, size, true), source = reach(gpu, from, size, false);
    if (!target.bytes || !source.bytes) return false;
    const u64 done = std::min(target.size, source.size);
    memmove(target.bytes, source.bytes, done);
    to += done;
    from += done;
    size -= done;
  }
  return true;
}

bool fill(u32 gpu, u64 to, const void* pattern, u64 pattern_size, u64 size) {
  const u8* bytes = static_cast<const u8*>(pattern);
  const bool uniform = std::all_of(bytes, bytes + pattern_size, [&](u8 byte) { return byte == bytes[0]; });
  for (u64 done = 0; done < size;) {
    const Run target = reach(gpu, to + done, size - done, true);
    if (!target.bytes) return false;
    if (uniform)
      memset(target.bytes, bytes[0], target.size);
    else
      for (u64 i = 0; i < target.size; i++)
        target.bytes[i] = static_cast<char>(bytes[(done + i) % pattern_size]);
    done += target.size;
  }
  return true;
}

}  // namespace standin

// For tests.
EXPORT uint64_t standin_used(int gpu) {
  std::lock_guard lock(standin::mutex());
  const auto& gpus = standin::machine().gpus;
  return gpu >= 0 && gpu < static_cast<int>(gpus.size()) ? gpus[gpu].used : 0;
}

EXPORT uint64_t standin_faults() {
  std::lock_guard lock(standin::mutex());
  return standin::machine().faults;
}
