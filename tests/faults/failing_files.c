/* Preloaded into a Python process: the nth call about a file fails, or does a half of what it was asked for. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static long countdown;
static int code;
static char failed[64];

/* The nth call from now on fails with `error`; 0: the nth that moves bytes does a half. What failed before, or "". */
const char* fail_file(long nth, int error) {
  static char before[64];
  strcpy(before, failed);
  failed[0] = 0;
  code = error;
  __atomic_store_n(&countdown, nth, __ATOMIC_SEQ_CST);
  return before;
}

/* The simulator's memory is files, too: those are not meant. */
static int is_meant(const char* call, int moves, const void* caller) {
  Dl_info about;
  if (__atomic_load_n(&countdown, __ATOMIC_SEQ_CST) <= 0 || (!code && !moves)) return 0;
  if (dladdr(caller, &about) && about.dli_fname && strstr(about.dli_fname, "hipsim")) return 0;
  if (__atomic_sub_fetch(&countdown, 1, __ATOMIC_SEQ_CST) != 0) return 0;
  strncpy(failed, call, sizeof failed - 1);
  return 1;
}

#define CALL(type, name, declared, ...)                                                \
  type name declared {                                                                 \
    type(*next) declared = (type(*) declared)dlsym(RTLD_NEXT, #name);                  \
    if (is_meant(#name, 0, __builtin_return_address(0))) return errno = code, -1; \
    return next(__VA_ARGS__);                                                          \
  }

CALL(int, fstat64, (int file, struct stat64* to), file, to)
CALL(int, fstatat64, (int folder, const char* path, struct stat64* to, int flags), folder, path, to, flags)
CALL(int, stat64, (const char* path, struct stat64* to), path, to)
CALL(int, faccessat, (int folder, const char* path, int mode, int flags), folder, path, mode, flags)
CALL(int, fchmod, (int file, mode_t mode), file, mode)
CALL(int, ftruncate64, (int file, off64_t size), file, size)
CALL(int, link, (const char* from, const char* to), from, to)
CALL(int, linkat, (int from_folder, const char* from, int to_folder, const char* to, int flags), from_folder, from,
     to_folder, to, flags)
CALL(int, renameat, (int from_folder, const char* from, int to_folder, const char* to), from_folder, from, to_folder, to)
CALL(int, unlink, (const char* path), path)
CALL(int, unlinkat, (int folder, const char* path, int flags), folder, path, flags)
CALL(int, flock, (int file, int operation), file, operation)
CALL(ssize_t, readlink, (const char* path, char* to, size_t size), path, to, size)
CALL(ssize_t, readlinkat, (int folder, const char* path, char* to, size_t size), folder, path, to, size)

#define OPEN(name, declared, ...)                                             \
  int name declared {                                                         \
    int(*next) declared = (int(*) declared)dlsym(RTLD_NEXT, #name);           \
    va_list rest;                                                             \
    va_start(rest, flags);                                                    \
    const long last = va_arg(rest, long);                                     \
    va_end(rest);                                                             \
    if (is_meant(#name, 0, __builtin_return_address(0))) return errno = code, -1; \
    return next(__VA_ARGS__, last);                                           \
  }

OPEN(open64, (const char* path, int flags, ...), path, flags)
OPEN(openat64, (int folder, const char* path, int flags, ...), folder, path, flags)
OPEN(fcntl64, (int file, int flags, ...), file, flags)

int posix_fallocate64(int file, off64_t at, off64_t size) {
  int (*next)(int, off64_t, off64_t) = (int (*)(int, off64_t, off64_t))dlsym(RTLD_NEXT, "posix_fallocate64");
  if (is_meant("posix_fallocate64", 0, __builtin_return_address(0))) return code;
  return next(file, at, size);
}

int close(int file) {
  int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "close");
  const int meant = is_meant("close", 0, __builtin_return_address(0));
  const int result = next(file); /* it is closed all the same, as in Linux */
  return meant ? (errno = code, -1) : result;
}

#define MOVE(name, declared, half, ...)                                      \
  ssize_t name declared {                                                    \
    ssize_t(*next) declared = (ssize_t(*) declared)dlsym(RTLD_NEXT, #name);  \
    if (is_meant(#name, 1, __builtin_return_address(0))) {                      \
      if (code) return errno = code, -1;                                     \
      half                                                                   \
    }                                                                        \
    return next(__VA_ARGS__);                                                \
  }

MOVE(write, (int file, const void* from, size_t size), { size -= size / 2; }, file, from, size)
MOVE(read, (int file, void* to, size_t size), { size -= size / 2; }, file, to, size)
MOVE(pwrite, (int file, const void* from, size_t size, off_t at), { size -= size / 2; }, file, from, size, at)
MOVE(pwrite64, (int file, const void* from, size_t size, off64_t at), { size -= size / 2; }, file, from, size, at)
MOVE(pread64, (int file, void* to, size_t size, off64_t at), { size -= size / 2; }, file, to, size, at)
MOVE(preadv, (int file, const struct iovec* to, int count, off_t at),
     {
       struct iovec first = *to;
       first.iov_len -= first.iov_len / 2;
       return next(file, &first, 1, at);
     },
     file, to, count, at)
