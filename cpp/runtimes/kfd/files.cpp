// The C library's functions for paths: the driver's device files, and its files below /sys, are answered
// here.
#include "files.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): realpath
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backing.hpp"
#include "faults.hpp"
#include "hip/parse.hpp"
#include "launches.hpp"
#include "log.hpp"
#include "machine.hpp"
#include "next.hpp"

namespace kfdsim {
namespace {

constexpr unsigned drm_major = 226;
constexpr unsigned kfd_major = 510;  // the kernel gives it any that is free
constexpr int first_render_minor = 128;

// By system calls: fopen is replaced below.
std::string text_of(const std::string& path) {
  const int file = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC, 0));
  std::string text;
  std::array<char, 4096> part{};
  ssize_t size = 0;
  while (file >= 0 && (size = read(file, part.data(), part.size())) > 0)
    text.append(part.data(), static_cast<std::size_t>(size));
  if (file >= 0) syscall(SYS_close, file);
  return text;
}

const std::vector<std::string>& answered_paths() {
  static const auto& paths = *new std::vector<std::string>([] {
    std::vector<std::string> lines;
    const std::string text = text_of(folder() + "/paths");
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      lines.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
    return lines;
  }());
  return paths;
}

bool may_be_answered(std::string_view path) {
  return path.starts_with("/sys/") || path.starts_with("/dev/dri") || path.starts_with("/proc/modules");
}

bool is_at_or_below(std::string_view path, std::string_view above) {
  return path.starts_with(above) && (path.size() == above.size() || path[above.size()] == '/');
}

// A path of the folder as the program knows it.
char* without_folder(char* path) {
  static const auto& real_folder = *new std::string([] {
    char* const resolved = next<char*(const char*, char*)>("realpath")(folder().c_str(), nullptr);
    std::string text = resolved ? resolved : folder();
    std::free(resolved);
    return text;
  }());
  for (const auto& prefix : {real_folder, folder()}) {
    if (prefix.empty() || !is_at_or_below(path, prefix)) continue;
    std::memmove(path, path + prefix.size(), std::strlen(path) - prefix.size() + 1);
    break;
  }
  return path;
}

int gpu_with_minor(int minor) {
  const std::lock_guard lock(mutex());
  const auto& gpus = machine().gpus;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    if (gpus[i].minor == minor) return static_cast<int>(i);
  }
  return not_driver;
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
  const redirected target(path);
  if (target.inside() && (flags & (O_ACCMODE | O_CREAT)) != O_RDONLY) {
    errno = EACCES;
    return -1;
  }
  return static_cast<int>(syscall(SYS_openat, folder_descriptor, target.path(), flags, mode));
}

std::FILE* fopen_any(const char* name, const char* path, const char* mode) {
  const redirected target(path);
  if (target.inside() && (mode[0] != 'r' || std::strchr(mode, '+'))) {
    errno = EACCES;
    return nullptr;
  }
  return next<FILE*(const char*, const char*)>(name)(target.path(), mode);
}

dev_t number_of(int driver) {
  if (driver == control) return makedev(kfd_major, 0);
  const std::lock_guard lock(mutex());
  return makedev(drm_major, static_cast<unsigned>(machine().gpus[static_cast<std::size_t>(driver)].minor));
}

// By its path, or without one by a descriptor.
int driver_called(int descriptor, const char* path) {
  return path && *path ? driver_at(path) : driver_of(descriptor);
}

int stat_any(int folder_descriptor, const char* path, struct stat* out, int flags) {
  const int driver = driver_called(folder_descriptor, path);
  if (driver != control && driver < 0) {
    const redirected target(path);
    return static_cast<int>(syscall(SYS_newfstatat, folder_descriptor, target.path(), out, flags));
  }
  *out = {};
  out->st_mode = S_IFCHR | 0666;
  out->st_nlink = 1;
  out->st_rdev = number_of(driver);
  out->st_blksize = page_bytes;
  return 0;
}

char* realpath_any(const char* path, char* resolved) {
  static auto* const real = next<char*(const char*, char*)>("realpath");
  const redirected target(path);
  char* const found = real(target.path(), resolved);
  return found && target.inside() ? without_folder(found) : found;
}

int glob_any(const char* name, const char* pattern, int flags, int (*failed)(const char*, int), void* out) {
  const redirected target(pattern);
  const int result =
      next<int(const char*, int, int (*)(const char*, int), void*)>(name)(target.path(), flags, failed, out);
  auto* const paths = static_cast<glob_t*>(out);  // glob64_t is the same here
  if (result != 0 || !target.inside()) return result;
  for (std::size_t i = 0; i < paths->gl_pathc; ++i) without_folder(paths->gl_pathv[paths->gl_offs + i]);
  return result;
}

}  // namespace

redirected::redirected(const char* path) : path_(path) {
  if (!path || !may_be_answered(path) || folder().empty()) return;
  for (const auto& answered : answered_paths()) {
    if (!is_at_or_below(path, answered)) continue;
    there_ = folder() + path;
    path_ = there_.c_str();
    return;
  }
}

int driver_at(const char* path) {
  if (!path || std::strncmp(path, "/dev/", 5) != 0 || folder().empty()) return not_driver;
  if (std::strcmp(path, "/dev/kfd") == 0) return control;
  const std::string_view given(path);
  for (const auto& [prefix, first] : {std::pair{std::string_view("/dev/dri/renderD"), 0},
                                      std::pair{std::string_view("/dev/dri/card"), first_render_minor}}) {
    if (!given.starts_with(prefix)) continue;
    const int number = hip::parse_number<int>(given.substr(prefix.size())).value_or(-1);
    return number < 0 ? not_driver : gpu_with_minor(first + number);
  }
  return not_driver;
}

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

KFDSIM_EXPORT FILE* fopen(const char* path, const char* mode) { return fopen_any("fopen", path, mode); }
KFDSIM_EXPORT FILE* fopen64(const char* path, const char* mode) { return fopen_any("fopen64", path, mode); }

KFDSIM_EXPORT DIR* opendir(const char* path) {
  static auto* const real = next<DIR*(const char*)>("opendir");
  return real(redirected(path).path());
}

KFDSIM_EXPORT int access(const char* path, int mode) noexcept {
  if (driver_at(path) != not_driver) return 0;
  return static_cast<int>(syscall(SYS_access, redirected(path).path(), mode));
}

KFDSIM_EXPORT int faccessat(int descriptor, const char* path, int mode, int flags) noexcept {
  static auto* const real = next<int(int, const char*, int, int)>("faccessat");
  if (driver_at(path) != not_driver) return 0;
  return real(descriptor, redirected(path).path(), mode, flags);
}

KFDSIM_EXPORT int stat(const char* path, struct stat* out) noexcept {
  return stat_any(AT_FDCWD, path, out, 0);
}
KFDSIM_EXPORT int stat64(const char* path, struct stat64* out) noexcept {
  return stat_any(AT_FDCWD, path, reinterpret_cast<struct stat*>(out), 0);
}
KFDSIM_EXPORT int lstat(const char* path, struct stat* out) noexcept {
  return stat_any(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}
KFDSIM_EXPORT int lstat64(const char* path, struct stat64* out) noexcept {
  return stat_any(AT_FDCWD, path, reinterpret_cast<struct stat*>(out), AT_SYMLINK_NOFOLLOW);
}
KFDSIM_EXPORT int fstat(int descriptor, struct stat* out) noexcept {
  return stat_any(descriptor, "", out, AT_EMPTY_PATH);
}
KFDSIM_EXPORT int fstat64(int descriptor, struct stat64* out) noexcept {
  return stat_any(descriptor, "", reinterpret_cast<struct stat*>(out), AT_EMPTY_PATH);
}
KFDSIM_EXPORT int fstatat(int descriptor, const char* path, struct stat* out, int flags) noexcept {
  return stat_any(descriptor, path, out, flags);
}
KFDSIM_EXPORT int fstatat64(int descriptor, const char* path, struct stat64* out, int flags) noexcept {
  return stat_any(descriptor, path, reinterpret_cast<struct stat*>(out), flags);
}

KFDSIM_EXPORT int statx(int descriptor, const char* path, int flags, unsigned mask,
                        struct statx* out) noexcept {
  struct stat device {};
  const int result =
      static_cast<int>(syscall(SYS_statx, descriptor, redirected(path).path(), flags, mask, out));
  const int driver = driver_called(descriptor, path);
  if ((driver != control && driver < 0) || stat_any(descriptor, path, &device, flags) != 0) return result;
  *out = {};
  out->stx_mask = STATX_TYPE | STATX_MODE | STATX_NLINK;
  out->stx_mode = static_cast<u16>(device.st_mode);
  out->stx_nlink = static_cast<u32>(device.st_nlink);
  out->stx_rdev_major = major(device.st_rdev);
  out->stx_rdev_minor = minor(device.st_rdev);
  return 0;
}

// What programs call that were built for a C library before 2.33; the first argument is always the same.
KFDSIM_EXPORT int __xstat(int, const char* path, struct stat* out) noexcept {
  return stat_any(AT_FDCWD, path, out, 0);
}
KFDSIM_EXPORT int __xstat64(int, const char* path, struct stat* out) noexcept {
  return stat_any(AT_FDCWD, path, out, 0);
}
KFDSIM_EXPORT int __lxstat(int, const char* path, struct stat* out) noexcept {
  return stat_any(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}
KFDSIM_EXPORT int __lxstat64(int, const char* path, struct stat* out) noexcept {
  return stat_any(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}
KFDSIM_EXPORT int __fxstat(int, int descriptor, struct stat* out) noexcept {
  return stat_any(descriptor, "", out, AT_EMPTY_PATH);
}
KFDSIM_EXPORT int __fxstat64(int, int descriptor, struct stat* out) noexcept {
  return stat_any(descriptor, "", out, AT_EMPTY_PATH);
}

KFDSIM_EXPORT ssize_t readlink(const char* path, char* out, size_t size) noexcept {
  return syscall(SYS_readlink, redirected(path).path(), out, size);
}

KFDSIM_EXPORT char* realpath(const char* path, char* resolved) noexcept {
  return realpath_any(path, resolved);
}
KFDSIM_EXPORT char* __realpath_chk(const char* path, char* resolved, size_t) noexcept {
  return realpath_any(path, resolved);
}

KFDSIM_EXPORT int glob(const char* pattern, int flags, int (*failed)(const char*, int),
                       glob_t* out) noexcept {
  return glob_any("glob", pattern, flags, failed, out);
}
KFDSIM_EXPORT int glob64(const char* pattern, int flags, int (*failed)(const char*, int),
                         glob64_t* out) noexcept {
  return glob_any("glob64", pattern, flags, failed, out);
}
