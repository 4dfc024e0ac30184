#include "host_access.hpp"

#include <pthread.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "memory_file.hpp"

namespace hipsim {
namespace {

using transfer = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);

// Moves bytes between two addresses of this process, and returns how many; -1 if the kernel forbids the call.
ssize_t move(transfer how, void* local, std::uintptr_t remote, std::size_t bytes) noexcept {
  const iovec here{local, bytes};
  const iovec there{reinterpret_cast<void*>(remote), bytes};
  const auto done = how(getpid(), &here, 1, &there, 1, 0);
  return done < 0 && errno == EFAULT ? 0 : done;
}

// The calling thread's stack, [low, high); {0, 0} if it is unknown.
std::pair<std::uintptr_t, std::uintptr_t> own_stack() noexcept {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return {0, 0};
  void* low = nullptr;
  std::size_t bytes = 0;
  const bool known = pthread_attr_getstack(&attributes, &low, &bytes) == 0;
  pthread_attr_destroy(&attributes);
  const auto begin = reinterpret_cast<std::uintptr_t>(low);
  return known ? std::pair(begin, begin + bytes) : std::pair(std::uintptr_t{0}, std::uintptr_t{0});
}

// Whether a range is in the callers' part of the thread's stack, which is always readable.
bool is_on_stack(std::uintptr_t address, std::size_t bytes) noexcept {
  static thread_local const auto stack = own_stack();
  const auto [low, high] = stack;
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  return low <= here && here <= address && address < high && bytes <= high - address;
}

// Whether the CPU can read eight bytes at a multiple of eight. rt_sigprocmask reads the mask before it
// rejects the invalid operation: no other call is as quick.
bool is_word_readable(std::uintptr_t address) noexcept {
  constexpr int nothing = -1;
  constexpr std::size_t mask_bytes = 8;
  return syscall(SYS_rt_sigprocmask, nothing, address, nullptr, mask_bytes) == 0 || errno != EFAULT;
}

}  // namespace

bool is_readable(std::uintptr_t address, std::size_t bytes) noexcept {
  if (bytes == 0 || is_on_stack(address, bytes)) return true;  // most outputs are: no system call needed
  constexpr std::uintptr_t page = 4096;
  constexpr std::uintptr_t word = 8;
  const auto last = address + (bytes - 1);
  if (last < address) return false;
  const int before = errno;
  bool readable = is_word_readable(address / word * word);
  for (auto at = address / page + 1; readable && at <= last / page; ++at)
    readable = is_word_readable(at * page);
  errno = before;
  return readable;
}

void read_host(std::uintptr_t from, void* to, std::size_t bytes) {
  const auto done = move(process_vm_readv, to, from, bytes);
  if (done < 0) {
    std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  } else if (static_cast<std::size_t>(done) < bytes) {
    throw bad_host_pointer("the CPU cannot read the source");
  }
}

void write_host(std::uintptr_t to, const void* from, std::size_t bytes) {
  const auto done = move(process_vm_writev, const_cast<void*>(from), to, bytes);
  if (done < 0) {
    std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  } else if (static_cast<std::size_t>(done) < bytes) {
    throw bad_host_pointer("the CPU cannot write the destination");
  }
}

void copy_host(std::uintptr_t to, std::uintptr_t from, std::size_t bytes) {
  std::vector<std::byte> bounce(std::min(bytes, bounce_bytes));
  const bool from_the_end = to > from && to - from < bytes;
  for (std::size_t done = 0; done < bytes;) {
    const auto step = std::min(bytes - done, bounce.size());
    const auto at = from_the_end ? bytes - done - step : done;
    read_host(from + at, bounce.data(), step);
    write_host(to + at, bounce.data(), step);
    done += step;
  }
}

}  // namespace hipsim
