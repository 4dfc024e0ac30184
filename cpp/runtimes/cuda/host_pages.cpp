#include "host_pages.hpp"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <iterator>
#include <thread>
#include <vector>

#include "devices.hpp"

namespace hipcuda {
namespace {

constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;
constexpr std::size_t fair_share_bytes = std::size_t{64} << 20;  ///< of a thread, which costs time to start
constexpr std::size_t threads_max = 16;
constexpr int populate_write = 23;  // MADV_POPULATE_WRITE of Linux 5.14, which older headers lack

std::size_t processors() noexcept {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  return std::max<std::size_t>(static_cast<std::size_t>(CPU_COUNT(&allowed)), 1);
}

/// False: the system has no pages left.
bool touch(std::byte* begin, std::size_t size_bytes) noexcept {
  if (madvise(begin, size_bytes, populate_write) == 0) return true;
  if (errno != EINVAL) return false;
  // An older Linux: page by page.
  const auto page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  for (std::size_t at = 0; at < size_bytes; at += page_bytes) {
    *const_cast<volatile std::byte*>(begin + at) = std::byte{0};
  }
  return true;
}

/// Starts threads that run no handler of the program: they have its signals blocked. As
/// core/without_signals.hpp, which no runtime includes.
class signals_blocked {
 public:
  signals_blocked() noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~signals_blocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  signals_blocked(const signals_blocked&) = delete;
  signals_blocked& operator=(const signals_blocked&) = delete;

 private:
  sigset_t before_{};
};

/// The calling thread touches what no other thread could be started for. False: the system has no pages left.
bool touch_by_threads(std::byte* begin, std::size_t size_bytes) noexcept {
  const auto wanted = std::min({processors(), threads_max, size_bytes / fair_share_bytes});
  const auto count = std::max<std::size_t>(wanted, 1);
  const auto share = (size_bytes / count + huge_page_bytes - 1) / huge_page_bytes * huge_page_bytes;
  std::vector<std::thread> others;
  std::atomic<bool> touched{true};
  std::size_t rest = share;
  try {
    const signals_blocked none;
    others.reserve(count);
    for (; rest < size_bytes; rest += share) {
      const auto size = std::min(share, size_bytes - rest);
      others.emplace_back([&touched, at = begin + rest, size] {
        if (!touch(at, size)) touched = false;
      });
    }
  } catch (const std::exception&) {
    if (!touch(begin + rest, size_bytes - rest)) touched = false;
  }
  if (!touch(begin, std::min(share, size_bytes))) touched = false;
  for (auto& other : others) other.join();
  return touched;
}

}  // namespace

void* map_touched_pages(std::size_t size_bytes) noexcept {
  void* const address = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return nullptr;
  madvise(address, size_bytes, MADV_HUGEPAGE);  // only faster
  // A forked child must not get copies of pages that the device writes; it has none of the driver's either.
  if (madvise(address, size_bytes, MADV_DONTFORK) == 0 &&
      touch_by_threads(static_cast<std::byte*>(address), size_bytes)) {
    return address;
  }
  unmap_pages(address, size_bytes);
  return nullptr;
}

void unmap_pages(void* address, std::size_t size_bytes) noexcept { munmap(address, size_bytes); }

bool pinned_pages::are_for(std::size_t size_bytes) noexcept { return size_bytes >= 2 * fair_share_bytes; }

void* pinned_pages::make(std::size_t size_bytes, unsigned int flags) {
  void* const address = map_touched_pages(size_bytes);
  if (!address) return nullptr;
  try {
    const std::scoped_lock lock(mutex_);
    const auto kept = blocks_.emplace(address, block{address, size_bytes, flags}).first;
    if (driver().cuMemHostRegister_v2(address, size_bytes, flags) == CUDA_SUCCESS) return address;
    blocks_.erase(kept);
  } catch (...) {
    unmap_pages(address, size_bytes);
    throw;
  }
  unmap_pages(address, size_bytes);
  return nullptr;
}

bool pinned_pages::remove(void* address) {
  std::map<const void*, block>::node_type gone;
  {
    const std::scoped_lock lock(mutex_);
    gone = blocks_.extract(address);
  }
  if (!gone) return false;
  // Without the lock: it takes the driver most of a second for 8 GiB, and every hipFree asks for the lock.
  const auto result = driver().cuMemHostUnregister(address);
  if (result == CUDA_SUCCESS) {
    unmap_pages(gone.mapped().address, gone.mapped().size_bytes);
  } else {
    const std::scoped_lock lock(mutex_);
    blocks_.insert(std::move(gone));
  }
  check(result);
  return true;
}

std::optional<pinned_pages::block> pinned_pages::at(const void* address) {
  const std::scoped_lock lock(mutex_);
  const auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) return std::nullopt;
  const auto& found = std::prev(next)->second;
  const auto inside =
      reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(found.address);
  return inside < found.size_bytes ? std::optional(found) : std::nullopt;
}

pinned_pages& pinned() {
  static auto& all = *new pinned_pages;
  return all;
}

}  // namespace hipcuda
