// The C library's functions by which a program reaches the kernel: what is meant for the driver goes to the
// stand-in, all else to the kernel.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "kfd.hpp"
#include "libc.hpp"
#include "svm.hpp"

namespace standin {

namespace {

constexpr const char* kTopologies[] = {"/sys/devices/virtual/kfd/kfd/topology",
                                       "/sys/class/kfd/kfd/topology"};

int driver_at(const char* path) {
  if (!path || strncmp(path, "/dev/", 5)) return kNotOurs;
  if (!strcmp(path, "/dev/kfd")) return kControl;
  int minor;
  if (sscanf(path, "/dev/dri/renderD%d", &minor) != 1) return kNotOurs;
  std::lock_guard lock(mutex());
  const auto& gpus = machine().gpus;
  for (size_t i = 0; i < gpus.size(); i++)
    if (gpus[i].minor == minor) return static_cast<int>(i);
  return kNotOurs;
}

// A path of the topology, where it really lies; any other as it is.
std::string led(const char* path) {
  if (!path) return "";
  for (const char* prefix : kTopologies)
    if (!strncmp(path, prefix, strlen(prefix))) return topology() + (path + strlen(prefix));
  return path;
}

template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

int open_driver(int driver) {
  std::lock_guard lock(mutex());
  Machine& here = machine();
  const int descriptor = static_cast<int>(syscall(SYS_memfd_create, "standin-device", MFD_CLOEXEC));
  if (descriptor >= 0) here.descriptors[descriptor] = driver;
  return descriptor;
}

}  // namespace standin

using namespace standin;

EXPORT int openat(int folder, const char* path, int flags, ...) {
  mode_t mode = 0;
  if (flags & (O_CREAT | O_TMPFILE)) {
    va_list rest;
    va_start(rest, flags);
    mode = va_arg(rest, mode_t);
    va_end(rest);
  }
  const int driver = driver_at(path);
  if (driver != kNotOurs) return open_driver(driver);
  return static_cast<int>(syscall(SYS_openat, folder, led(path).c_str(), flags, mode));
}

#define OPEN(name)                                    \
  EXPORT int name(const char* path, int flags, ...) { \
    va_list rest;                                     \
    va_start(rest, flags);                            \
    const mode_t mode = va_arg(rest, mode_t);         \
    va_end(rest);                                     \
    return openat(AT_FDCWD, path, flags, mode);       \
  }
OPEN(open)
OPEN(open64)

EXPORT int __open_2(const char* path, int flags) { return openat(AT_FDCWD, path, flags); }
EXPORT int __open64_2(const char* path, int flags) { return openat(AT_FDCWD, path, flags); }

EXPORT FILE* fopen(const char* path, const char* mode) {
  static const auto next = real<FILE*(const char*, const char*)>("fopen");
  return next(led(path).c_str(), mode);
}

EXPORT FILE* fopen64(const char* path, const char* mode) {
  static const auto next = real<FILE*(const char*, const char*)>("fopen64");
  return next(led(path).c_str(), mode);
}

EXPORT DIR* opendir(const char* path) {
  static const auto next = real<DIR*(const char*)>("opendir");
  return next(led(path).c_str());
}

EXPORT int access(const char* path, int mode) noexcept {
  if (driver_at(path) != kNotOurs) return 0;
  return static_cast<int>(syscall(SYS_access, led(path).c_str(), mode));
}

EXPORT int ioctl(int descriptor, unsigned long request, ...) noexcept {
  va_list rest;
  va_start(rest, request);
  void* argument = va_arg(rest, void*);
  va_end(rest);
  if (driver_of(descriptor) != kControl)
    return static_cast<int>(syscall(SYS_ioctl, descriptor, request, argument));
  const int result = kfd_ioctl(request, argument);
  if (result) {
    const int error = errno;
    log(1, "ioctl %#lx: %s", request & 0xff, strerror(error));
    errno = error;
  }
  return result;
}

// Through an open driver, an offset names a buffer's memory, in the file of all or in one of its own.
EXPORT void* mmap(void* address, size_t size, int protection, int flags, int descriptor,
                  off_t offset) noexcept {
  if (driver_of(descriptor) != kNotOurs) {
    std::lock_guard lock(mutex());
    descriptor = machine().memory;
    for (const auto& [id, buffer] : machine().buffers) {
      if (!buffer->shareable || static_cast<u64>(offset) != mmap_offset(*buffer)) continue;
      descriptor = buffer->file;
      offset = static_cast<off_t>(buffer->offset);
      break;
    }
  }
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, size, protection, flags, descriptor, offset));
}

EXPORT void* mmap64(void* address, size_t size, int protection, int flags, int descriptor,
                    off_t offset) noexcept {
  return mmap(address, size, protection, flags, descriptor, offset);
}

EXPORT int munmap(void* address, size_t size) noexcept {
  const int result = static_cast<int>(syscall(SYS_munmap, address, size));
  if (!result) svm_forget(reinterpret_cast<u64>(address), size);
  return result;
}

EXPORT int close(int descriptor) {
  if (descriptor >= 0 && opened()) {
    std::lock_guard lock(mutex());
    if (descriptor == machine().memory)
      return 0;  // the kernel's memory has no descriptor that a program could close
    machine().descriptors.erase(descriptor);
  }
  return static_cast<int>(syscall(SYS_close, descriptor));
}
