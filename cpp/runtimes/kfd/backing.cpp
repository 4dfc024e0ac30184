#include "backing.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

#include "hip/parse.hpp"
#include "memory.hpp"

namespace kfdsim {
namespace {

constexpr u64 unlimited = std::numeric_limits<u64>::max();
constexpr u64 left_to_others = 256 << 20;
constexpr u64 granted_at_a_time = 64 << 20;

// The number behind a name in a file of lines, or the first number without a name.
u64 number_in(const char* path, const char* name, u64 otherwise) {
  std::FILE* const file = std::fopen(path, "re");
  if (!file) return otherwise;
  char line[128];
  u64 number = otherwise;
  while (std::fgets(line, sizeof line, file)) {
    const std::size_t length = std::strlen(name);
    char* end = nullptr;
    if (std::strncmp(line, name, length) != 0) continue;
    const u64 read = std::strtoull(line + length, &end, 10);
    if (end != line + length) number = read;  // not "max"
    break;
  }
  std::fclose(file);
  return number;
}

const char* wanted_limit() {
  const char* const given = std::getenv("KFDSIM_MEMORY_LIMIT");
  return given && *given ? given : nullptr;
}

// What backs memory of this process now.
u64 backed() {
  constexpr u64 block_bytes = 512;
  u64 blocks = 0;
  struct stat file {};
  if (status_of(machine().memory, &file) == 0) blocks += static_cast<u64>(file.st_blocks);
  for (const auto& [inode, memory] : machine().shareable) {
    if (status_of(memory->file, &file) == 0) blocks += static_cast<u64>(file.st_blocks);
  }
  return blocks * block_bytes;
}

u64 room() {
  const char* const meminfo = "/proc/meminfo";  // in kB
  const u64 available =
      number_in(meminfo, "MemAvailable:", unlimited >> 11) + number_in(meminfo, "SwapFree:", 0);
  const u64 limit = backing_limit(), used = backed();
  return std::min(available << 10 > left_to_others ? (available << 10) - left_to_others : 0,
                  limit > used ? limit - used : 0);
}

// How many of these bytes of a file nothing backs yet.
u64 unbacked(int file, off_t begin, off_t end) {
  u64 bytes = 0;
  while (begin < end) {
    const off_t hole = std::min(lseek(file, begin, SEEK_HOLE), end);
    const off_t data = hole < 0 ? -1 : lseek(file, hole, SEEK_DATA);
    const off_t hole_ends = data < 0 ? end : std::min(data, end);
    if (hole < 0) return bytes;
    bytes += static_cast<u64>(hole_ends - hole);
    begin = hole_ends;
  }
  return bytes;
}

}  // namespace

std::string wrong_limit() {
  const char* const wanted = wanted_limit();
  if (!wanted || hip::parse_number<u64>(wanted)) return "";
  return std::string(wanted) + " is not a number of bytes";
}

u64 backing_limit() {
  static const u64 limit = [] {
    struct sysinfo here {};
    syscall(SYS_sysinfo, &here);
    const u64 machine_bytes = (u64{here.totalram} + here.totalswap) * here.mem_unit;
    const u64 group_bytes = number_in("/sys/fs/cgroup/memory.max", "", unlimited);
    const char* const wanted = wanted_limit();
    const u64 wanted_bytes = wanted ? hip::parse_number<u64>(wanted).value_or(unlimited) : unlimited;
    return std::min({machine_bytes ? machine_bytes : unlimited, group_bytes, wanted_bytes});
  }();
  return limit;
}

bool can_back(const physical& memory, u64 inside, u64 bytes) {
  static u64 granted = 0;  // so that not each of many small writes reads the machine's state
  if (bytes > granted) {
    const u64 left = room();
    if (bytes > left) {
      const auto part = file_at(memory.place + inside, bytes);
      return part && unbacked(part->file, part->offset, part->offset + static_cast<off_t>(bytes)) <= left;
    }
    granted = std::max(bytes, std::min(left, granted_at_a_time));
  }
  granted -= bytes;
  return true;
}

u64 give_back(const physical& memory, u64 inside, u64 bytes) {
  const u64 whole = bytes / page_bytes * page_bytes;
  const auto part = file_at(memory.place + inside, whole);
  if (!part || !whole || inside % page_bytes) return 0;
  const auto size = static_cast<off_t>(whole);
  return fallocate(part->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, part->offset, size) == 0 ? whole
                                                                                                    : 0;
}

}  // namespace kfdsim
