#include "processors.hpp"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>
#include <thread>

namespace hipplan {
namespace {

/// Reads a cgroup's CPU quota and period, in microseconds, and returns the processors that they allow. 0: no
/// limit, or it is unknown.
///
/// No C++ stream: if this library has its own copy of the C++ runtime, its streams and those of another copy,
/// such as PyTorch's, mix up their facets.
unsigned read_quota(const char* path) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  std::array<char, 64> text{};
  const auto length = read(file, text.data(), text.size());
  close(file);
  const char* const end = text.data() + std::max<ssize_t>(length, 0);
  long long quota = 0;
  long long period = 0;
  const auto first = std::from_chars(text.data(), end, quota);  // "max 100000"
  if (first.ec != std::errc{} || first.ptr == end) return 0;
  const auto second = std::from_chars(first.ptr + 1, end, period);
  if (second.ec != std::errc{} || quota <= 0 || period <= 0) return 0;
  return static_cast<unsigned>(std::min<long long>((quota + period - 1) / period, 1 << 16));
}

}  // namespace

unsigned usable_processors() {
  unsigned count = std::max(1U, std::thread::hardware_concurrency());
  cpu_set_t affinity;  // room for 1024 processors; on larger machines the call fails
  if (sched_getaffinity(0, sizeof affinity, &affinity) == 0) {
    count = static_cast<unsigned>(std::max(1, CPU_COUNT(&affinity)));
  }
  // The limit of a container, which sees its own cgroup as the root.
  const auto limit = read_quota("/sys/fs/cgroup/cpu.max");
  return limit == 0 ? count : std::min(count, limit);
}

}  // namespace hipplan
