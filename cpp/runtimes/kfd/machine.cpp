#include "machine.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "events.hpp"
#include "faults.hpp"
#include "ledger.hpp"
#include "log.hpp"
#include "queues.hpp"

namespace kfdsim {
namespace {

constexpr u64 first_doorbells = 1 << 20;

machine_state* the_machine = nullptr;  // never destroyed: threads use it while the process exits

u64 property(const std::string& path, const char* name) {
  std::FILE* const file = std::fopen(path.c_str(), "re");
  if (!file) return 0;
  char line[320];
  u64 found = 0;
  const std::size_t length = std::strlen(name);
  while (std::fgets(line, sizeof line, file)) {
    if (std::strncmp(line, name, length) == 0 && line[length] == ' ')
      found = std::strtoull(line + length, nullptr, 10);
  }
  std::fclose(file);
  return found;
}

std::string first_line(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "re");
  if (!file) return "";
  char line[320];
  std::string text = std::fgets(line, sizeof line, file) ? line : "";
  std::fclose(file);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

gpu_state gpu_at(const std::string& node, u32 id, machine_state& made) {
  gpu_state gpu;
  gpu.id = id;
  gpu.name = first_line(node + "/marketing_name");
  gpu.bytes = property(node + "/mem_banks/0/properties", "size_in_bytes");
  gpu.minor = static_cast<int>(property(node + "/properties", "drm_render_minor"));
  gpu.device_id = static_cast<u32>(property(node + "/properties", "device_id"));
  gpu.integrated = property(node + "/driver", "integrated") != 0;
  gpu.compute_units = static_cast<u32>(property(node + "/properties", "simd_count") /
                                       std::max<u64>(1, property(node + "/properties", "simd_per_cu")));
  gpu.engine_khz = 1000 * property(node + "/properties", "max_engine_clk_fcompute");
  gpu.memory_khz = 1000 * property(node + "/mem_banks/0/properties", "mem_clk_max");
  gpu.memory_bits = static_cast<u32>(property(node + "/mem_banks/0/properties", "width"));
  gpu.doorbells = made.first_place;
  made.first_place += doorbell_bytes;
  return gpu;
}

// Nodes with GPU id 0 are the host's.
void read_topology(machine_state& made) {
  for (int number = 0;; ++number) {
    const std::string node =
        folder() + "/sys/devices/virtual/kfd/kfd/topology/nodes/" + std::to_string(number);
    const std::string id = first_line(node + "/gpu_id");
    if (id.empty()) break;
    if (id == "0") {
      const u64 bytes = property(node + "/mem_banks/0/properties", "size_in_bytes");
      made.host_bytes += bytes;
      made.host_limit += bytes / 16 * 15;
    } else {
      made.gpus.push_back(gpu_at(node, static_cast<u32>(std::strtoul(id.c_str(), nullptr, 10)), made));
    }
  }
  made.page_tables.resize(made.gpus.size());
  made.xnack = property(folder() + "/driver", "xnack") != 0;
}

machine_state* new_machine() {
  auto* const made = new machine_state;
  made->process = getpid();
  made->memory = static_cast<int>(syscall(SYS_memfd_create, "kfdsim-memory", MFD_CLOEXEC));
  if (ftruncate(made->memory, static_cast<off_t>(memory_file_bytes)) != 0)
    log(0, "cannot make a memory file of %llu bytes: %s", static_cast<unsigned long long>(memory_file_bytes),
        std::strerror(errno));
  made->first_place = first_doorbells;
  read_topology(*made);
  made->next_place = made->first_place = round_up(made->first_place, big_page_bytes);
  if (made->gpus.empty()) log(0, "KFDSIM_MACHINE=%s describes no GPU", folder().c_str());
  if (the_machine) {  // a forked child has its parent's descriptors, which the driver refuses
    for (const auto& [descriptor, file] : the_machine->descriptors)
      made->descriptors[descriptor] = {of_parent, file.device, file.inode};
  }
  return made;
}

// A child must not find a mutex held by a thread that it does not have.
void renew() {
  new (&mutex()) std::recursive_mutex;
  forget_rules();
}

}  // namespace

std::recursive_mutex& mutex() {
  static auto* const made = [] {
    pthread_atfork([] { mutex().lock(); }, [] { mutex().unlock(); }, renew);
    return new std::recursive_mutex;
  }();
  return *made;
}

machine_state& machine() {
  if (!opened()) {
    the_machine = new_machine();
    forget_events();
    forget_queues();
    write_ledger_at_exit();
  }
  return *the_machine;
}

// Also false in a child of vfork, which shares this memory and must not change it.
bool opened() { return the_machine && the_machine->process == getpid(); }

const std::string& folder() {
  static const std::string& path = *new std::string([] {
    const char* given = std::getenv("KFDSIM_MACHINE");
    return given ? given : "";
  }());
  return path;
}

int gpu_of(u32 id) {
  const auto& gpus = machine().gpus;
  const auto found = std::find_if(gpus.begin(), gpus.end(), [id](const auto& gpu) { return gpu.id == id; });
  return found == gpus.end() ? -1 : static_cast<int>(found - gpus.begin());
}

int open_driver(int driver) {
  const std::lock_guard lock(mutex());
  auto& descriptors = machine().descriptors;
  const int descriptor = static_cast<int>(syscall(SYS_memfd_create, "kfdsim-device", MFD_CLOEXEC));
  struct stat file {};
  if (descriptor >= 0 && status_of(descriptor, &file) == 0)
    descriptors[descriptor] = {driver, file.st_dev, file.st_ino};
  return descriptor;
}

int status_of(int descriptor, struct stat* out) {
  return static_cast<int>(syscall(SYS_fstat, descriptor, out));
}

int driver_of(int descriptor) {
  if (descriptor < 0 || !the_machine) return not_driver;
  const std::lock_guard lock(mutex());
  auto& descriptors = the_machine->descriptors;
  struct stat file {};
  if (descriptors.empty() || status_of(descriptor, &file) != 0) return not_driver;
  auto found = descriptors.find(descriptor);
  if (found == descriptors.end() ||
      !found->second.is(file)) {  // a copy, or closed by a call that is not replaced
    found = std::find_if(descriptors.begin(), descriptors.end(),
                         [&](const auto& known) { return known.second.is(file); });
    if (found == descriptors.end()) return not_driver;
    if (opened()) descriptors[descriptor] = found->second;
  }
  return opened() ? found->second.driver : of_parent;
}

u64 machine_state::page_tables_take() const {
  u64 largest = 0;
  for (const auto& gpu : gpus) largest = std::max(largest, gpu.bytes);
  return std::max<u64>(largest >> 14, 2 << 20) + (8 << 20);
}

}  // namespace kfdsim
