#include "processors.hpp"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <thread>

namespace hipplan {
namespace {

/// The two numbers of a file: quota and period, in microseconds. 0: there is no limit, or it is not told.
unsigned paid_for(const char* path) {
  std::ifstream file(path);
  long long quota = 0;
  long long period = 0;
  if (!(file >> quota >> period)) return 0;  // "max 100000"
  if (quota <= 0 || period <= 0) return 0;
  return static_cast<unsigned>(std::min<long long>((quota + period - 1) / period, 1 << 16));
}

}  // namespace

unsigned usable_processors() {
  unsigned count = std::max(1U, std::thread::hardware_concurrency());
  cpu_set_t mine;  // 1024 processors; of larger machines the kernel refuses to tell
  if (sched_getaffinity(0, sizeof mine, &mine) == 0) {
    count = static_cast<unsigned>(std::max(1, CPU_COUNT(&mine)));
  }
  // Of a container, which sees its own group as the root.
  const auto limit = paid_for("/sys/fs/cgroup/cpu.max");
  return limit == 0 ? count : std::min(count, limit);
}

}  // namespace hipplan
