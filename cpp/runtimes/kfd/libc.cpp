// The C library's functions for descriptors and memory: calls for the driver are handled here, all others go
// to the kernel.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>

#include "ioctls.hpp"
#include "machine.hpp"
#include "managed.hpp"
#include "memory.hpp"
#include "render.hpp"

using namespace kfdsim;  // NOLINT(google-build-using-namespace): what follows are C functions

KFDSIM_EXPORT int ioctl(int descriptor, unsigned long request, ...) noexcept {
  va_list rest;
  va_start(rest, request);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  switch (const int driver = driver_of(descriptor)) {
    case control:
      return kfd_ioctl(request, argument);
    case of_parent:  // as in the kernel: only the process that opened the descriptor may use it
      errno = EBADF;
      return -1;
    default:
      if (driver >= 0) return render_ioctl(driver, request, argument);
      return static_cast<int>(syscall(SYS_ioctl, descriptor, request, argument));
  }
}

// For a descriptor of the driver, the offset is the place of a memory, of this process or of another.
KFDSIM_EXPORT void* mmap(void* address, size_t size, int protection, int flags, int descriptor,
                         off_t offset) noexcept {
  const int driver = driver_of(descriptor);
  if (driver == control || driver >= 0) {
    const std::lock_guard lock(mutex());
    const auto part = file_at(static_cast<u64>(offset), size);
    if (!part) {
      errno = EINVAL;
      return MAP_FAILED;
    }
    descriptor = part->file;
    offset = part->offset;
  }
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, size, protection, flags, descriptor, offset));
}

KFDSIM_EXPORT void* mmap64(void* address, size_t size, int protection, int flags, int descriptor,
                           off_t offset) noexcept {
  return mmap(address, size, protection, flags, descriptor, offset);
}

KFDSIM_EXPORT int munmap(void* address, size_t size) noexcept {
  const int result = static_cast<int>(syscall(SYS_munmap, address, size));
  if (result == 0) forget_managed(reinterpret_cast<u64>(address), size);
  return result;
}

// AMD's HIP takes the host's memory for the largest size of one allocation: it is that of the profile.
KFDSIM_EXPORT int sysinfo(struct sysinfo* out) noexcept {
  const int result = static_cast<int>(syscall(SYS_sysinfo, out));
  if (result != 0 || folder().empty()) return result;
  const std::lock_guard lock(mutex());
  const auto& here = machine();
  out->totalram = here.host_bytes;
  out->freeram = here.host_bytes - std::min(here.host_bytes, here.host_used);
  out->sharedram = out->bufferram = out->totalswap = out->freeswap = 0;
  out->mem_unit = 1;
  return 0;
}

KFDSIM_EXPORT int close(int descriptor) {
  if (descriptor >= 0 && opened()) {
    const std::lock_guard lock(mutex());
    if (descriptor == machine().memory) return 0;  // the memory file's descriptor must not be closed
    machine().descriptors.erase(descriptor);
  }
  return static_cast<int>(syscall(SYS_close, descriptor));
}
