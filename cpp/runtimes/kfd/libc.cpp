// The C library's functions that reach the kernel: calls for the driver are handled here, all others go to
// the kernel.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "backing.hpp"
#include "faults.hpp"
#include "hip/parse.hpp"
#include "ioctls.hpp"
#include "launches.hpp"
#include "log.hpp"
#include "machine.hpp"
#include "managed.hpp"
#include "memory.hpp"

namespace kfdsim {
namespace {

struct redirected_folder {
  const char* path;
  const char* inside;  ///< of KFDSIM_MACHINE
};
constexpr redirected_folder redirected_folders[] = {{"/sys/devices/virtual/kfd/kfd/topology", "/topology"},
                                                    {"/sys/class/kfd/kfd/topology", "/topology"},
                                                    {"/sys/module/amdgpu", "/module"}};

int driver_at(const char* path) {
  if (!path || std::strncmp(path, "/dev/", 5) != 0 || folder().empty()) return not_driver;
  if (std::strcmp(path, "/dev/kfd") == 0) return control;
  constexpr std::string_view render = "/dev/dri/renderD";
  const std::string_view given(path);
  if (!given.starts_with(render)) return not_driver;
  const int minor = hip::parse_number<int>(given.substr(render.size())).value_or(-1);
  const std::lock_guard lock(mutex());
  const auto& gpus = machine().gpus;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    if (gpus[i].minor == minor) return static_cast<int>(i);
  }
  return not_driver;
}

// Redirects a path of the topology into KFDSIM_MACHINE; leaves any other path unchanged.
class redirected {
 public:
  explicit redirected(const char* path) : path_(path) {
    if (!path || std::strncmp(path, "/sys/", 5) != 0 || folder().empty()) return;
    for (const auto& folder_pair : redirected_folders) {
      const auto length = std::strlen(folder_pair.path);
      if (std::strncmp(path, folder_pair.path, length) != 0 || (path[length] != '/' && path[length] != '\0'))
        continue;
      there_ = folder() + folder_pair.inside + (path + length);
      path_ = there_.c_str();
    }
  }
  [[nodiscard]] const char* path() const { return path_; }

 private:
  std::string there_;
  const char* path_;
};

// The C library's own function, which this library replaces.
template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

int open_driver_checked(int driver) {
  const std::pair<const char*, std::string> settings[] = {{"KFDSIM_FAIL", wrong_rules()},
                                                          {"KFDSIM_MEMORY_LIMIT", wrong_limit()},
                                                          {"KFDSIM_REFUSE_KERNELS", refuse_launches()}};
  for (const auto& [name, wrong] : settings) {
    if (wrong.empty()) continue;
    log(0, "cannot start: %s: %s", name, wrong.c_str());
    errno = ENODEV;
    return -1;
  }
  {
    const std::lock_guard lock(mutex());
    if (machine().gpus.empty() || machine().memory < 0) {
      errno = ENODEV;
      return -1;
    }
  }
  return open_driver(driver);
}

int open_any(int folder_descriptor, const char* path, int flags, mode_t mode) {
  const int driver = driver_at(path);
  if (driver != not_driver) return open_driver_checked(driver);
  return static_cast<int>(syscall(SYS_openat, folder_descriptor, redirected(path).path(), flags, mode));
}

}  // namespace
}  // namespace kfdsim

using namespace kfdsim;  // NOLINT(google-build-using-namespace): what follows are C functions

#define MODE_OF(flags)                   \
  mode_t mode = 0;                       \
  if ((flags) & (O_CREAT | O_TMPFILE)) { \
    va_list rest;                        \
    va_start(rest, flags);               \
    mode = va_arg(rest, mode_t);         \
    va_end(rest);                        \
  }

KFDSIM_EXPORT int open(const char* path, int flags, ...) {
  MODE_OF(flags)
  return open_any(AT_FDCWD, path, flags, mode);
}

KFDSIM_EXPORT int open64(const char* path, int flags, ...) {
  MODE_OF(flags)
  return open_any(AT_FDCWD, path, flags | O_LARGEFILE, mode);
}

KFDSIM_EXPORT int openat(int folder_descriptor, const char* path, int flags, ...) {
  MODE_OF(flags)
  return open_any(folder_descriptor, path, flags, mode);
}

KFDSIM_EXPORT int openat64(int folder_descriptor, const char* path, int flags, ...) {
  MODE_OF(flags)
  return open_any(folder_descriptor, path, flags | O_LARGEFILE, mode);
}

KFDSIM_EXPORT int __open_2(const char* path, int flags) { return open_any(AT_FDCWD, path, flags, 0); }
KFDSIM_EXPORT int __open64_2(const char* path, int flags) { return open_any(AT_FDCWD, path, flags, 0); }

KFDSIM_EXPORT FILE* fopen(const char* path, const char* mode) {
  static auto* const real = next<FILE*(const char*, const char*)>("fopen");
  return real(redirected(path).path(), mode);
}

KFDSIM_EXPORT FILE* fopen64(const char* path, const char* mode) {
  static auto* const real = next<FILE*(const char*, const char*)>("fopen64");
  return real(redirected(path).path(), mode);
}

KFDSIM_EXPORT DIR* opendir(const char* path) {
  static auto* const real = next<DIR*(const char*)>("opendir");
  return real(redirected(path).path());
}

KFDSIM_EXPORT int access(const char* path, int mode) noexcept {
  if (driver_at(path) != not_driver) return 0;
  return static_cast<int>(syscall(SYS_access, redirected(path).path(), mode));
}

KFDSIM_EXPORT int ioctl(int descriptor, unsigned long request, ...) noexcept {
  va_list rest;
  va_start(rest, request);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  switch (driver_of(descriptor)) {
    case control:
      return kfd_ioctl(request, argument);
    case of_parent:  // as in the kernel: only the process that opened the descriptor may use it
      errno = EBADF;
      return -1;
    default:
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
