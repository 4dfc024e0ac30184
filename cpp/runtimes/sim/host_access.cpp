#include "host_access.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "memory_file.hpp"

namespace hipsim {
namespace {

constexpr std::size_t bounce_bytes = std::size_t{1} << 20;

using transfer = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);

// Bytes moved between `local` and `remote`, an address of this process too; -1 where the kernel does not do
// it.
ssize_t move(transfer how, void* local, std::uintptr_t remote, std::size_t bytes) noexcept {
  const iovec here{local, bytes};
  const iovec there{reinterpret_cast<void*>(remote), bytes};
  const auto done = how(getpid(), &here, 1, &there, 1, 0);
  return done < 0 && errno == EFAULT ? 0 : done;
}

}  // namespace

bool is_readable(std::uintptr_t address, std::size_t bytes) noexcept {
  char sink[64];
  for (std::size_t at = 0; at < bytes; at += sizeof sink) {
    const auto step = std::min(sizeof sink, bytes - at);
    const auto done = move(process_vm_readv, sink, address + at, step);
    if (done < 0) return true;
    if (static_cast<std::size_t>(done) < step) return false;
  }
  return true;
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
