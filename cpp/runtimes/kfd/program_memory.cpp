#include "program_memory.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "machine.hpp"

namespace kfdsim {
namespace {

// Copies by a call of the kernel's, which answers EFAULT. A sandbox may forbid the call: then nothing can be
// checked.
bool copied(long call, void* here, u64 there, u64 size) {
  const iovec local{here, size}, program{reinterpret_cast<void*>(there), size};
  const long done = syscall(call, getpid(), &local, 1ul, &program, 1ul, 0ul);
  if (done >= 0 || errno == EFAULT) return done == static_cast<long>(size);
  if (call == SYS_process_vm_readv) {
    std::memcpy(here, program.iov_base, size);
  } else {
    std::memcpy(program.iov_base, here, size);
  }
  return true;
}

}  // namespace

bool read_program(void* to, u64 from, u64 size) { return copied(SYS_process_vm_readv, to, from, size); }

bool write_program(u64 to, const void* from, u64 size) {
  return copied(SYS_process_vm_writev, const_cast<void*>(from), to, size);
}

map_reader::map_reader() : file_(std::fopen("/proc/self/maps", "re")) {}

map_reader::~map_reader() {
  if (file_) std::fclose(file_);
  std::free(text_);
}

// "7f0000000000-7f0000200000 rw-s 00000000 00:01 1234     /memfd:name (deleted)"
bool map_reader::next(map_line* out) {
  if (!file_ || getline(&text_, &capacity_, file_) < 0) return false;
  char* rest = text_;
  out->begin = std::strtoull(rest, &rest, 16);
  out->end = std::strtoull(rest + 1, &rest, 16);
  const char* const rights = rest + 1;
  out->protection = (rights[0] == 'r' ? PROT_READ : 0) | (rights[1] == 'w' ? PROT_WRITE : 0) |
                    (rights[2] == 'x' ? PROT_EXEC : 0);
  out->offset = std::strtoull(rights + std::strlen("rwxp"), &rest, 16);
  rest = std::strchr(rest + 1, ' ');  // behind the device
  out->inode = std::strtoull(rest, &rest, 10);
  out->path = rest + std::strspn(rest, " ");
  return true;
}

host_range inspect(u64 start, u64 size) {
  host_range range;
  map_reader maps;
  u64 next = start;
  for (map_line line; next < start + size && maps.next(&line);) {
    if (line.end <= next) continue;
    if (line.begin > next) break;
    range.readable &= (line.protection & PROT_READ) != 0;
    range.writable &= (line.protection & PROT_WRITE) != 0;
    range.of_devices |= std::strncmp(line.path, "/memfd:kfdsim-", 14) == 0;
    next = line.end;
  }
  range.present = next >= start + size;
  return range;
}

u64 accessible(u64 start, u64 size, int protection) {
  map_reader maps;
  u64 next = start;
  for (map_line line; next - start < size && maps.next(&line);) {
    if (line.end <= next) continue;
    if (line.begin > next || (line.protection & protection) != protection) break;
    next = line.end;
  }
  return std::min(next - start, size);
}

}  // namespace kfdsim
