#include "ledger.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "events.hpp"
#include "machine.hpp"
#include "memory.hpp"
#include "queues.hpp"

namespace kfdsim {
namespace {

// Just enough of a JSON writer: objects in a list, fields in an object.
class writer {
 public:
  void open(const char* key) { out_ += separator() + '"' + key + "\": [", first_ = true; }
  void close() { out_ += ']', first_ = false; }
  void begin() { out_ += separator() + '{', first_ = true; }
  void end() { out_ += '}', first_ = false; }
  void number(const char* key, u64 value) { field(key, std::to_string(value)); }
  void address(const char* key, u64 value) {
    char text[2 + 16 + 3];
    std::snprintf(text, sizeof text, "\"0x%llx\"", static_cast<unsigned long long>(value));
    field(key, text);
  }
  void text(const char* key, const char* value) { field(key, '"' + std::string(value) + '"'); }
  void flag(const char* key, bool value) { field(key, value ? "true" : "false"); }
  [[nodiscard]] std::string take() { return std::move(out_); }

 private:
  void field(const char* key, const std::string& value) { out_ += separator() + '"' + key + "\": " + value; }
  std::string separator() {
    const bool first = std::exchange(first_, false);
    return first ? "" : ", ";
  }
  std::string out_;
  bool first_ = true;
};

const char* kind_of(const physical& memory) {
  if (memory.foreign) return "of another process";
  if (memory.registered) return "registered";
  if (memory.flags & KFD_IOC_ALLOC_MEM_FLAGS_VRAM) return "gpu";
  if (memory.flags & KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL) return "doorbells";
  return "host";
}

void write_gpus(writer& out) {
  out.open("gpus");
  u64 number = 0;
  for (const auto& gpu : machine().gpus) {
    out.begin();
    out.number("gpu", number++);
    out.number("id", gpu.id);
    out.number("used", gpu.used);
    out.number("bytes", gpu.bytes);
    out.end();
  }
  out.close();
  out.number("host_used", machine().host_used);
}

void write_memory(writer& out, const physical& memory) {
  out.text("kind", kind_of(memory));
  out.number("gpu", memory.gpu);
  out.number("size", memory.size);
}

void write_buffers(writer& out) {
  out.open("buffers");
  for (const auto& [handle, one] : machine().allocations) {
    out.begin();
    out.address("handle", handle);
    out.address("address", one.address);
    write_memory(out, *one.memory);
    out.number("mapped_by", one.mapped.size());
    out.end();
  }
  out.close();
  out.open("imports");
  for (const auto& [number, one] : machine().imports) {
    out.begin();
    out.number("import", number);
    out.number("by_gpu", one->gpu);
    write_memory(out, *one->memory);
    out.end();
  }
  out.close();
  out.open("exported");
  for (const auto* memory : machine().only_exported) {
    out.begin();
    write_memory(out, *memory);
    out.end();
  }
  out.close();
}

void write_mappings(writer& out) {
  out.open("mappings");
  u64 gpu = 0;
  for (const auto& table : machine().page_tables) {
    for (const auto& [address, one] : table) {
      out.begin();
      out.number("gpu", gpu);
      out.address("address", address);
      out.number("size", one.size);
      out.flag("readable", one.readable);
      out.flag("writable", one.writable);
      out.number("import", one.import);
      out.end();
    }
    ++gpu;
  }
  out.close();
  out.open("managed");
  for (const auto& [address, one] : machine().managed) {
    out.begin();
    out.address("address", address);
    out.number("size", one.last - address + 1);
    out.address("access", one.access | one.access_in_place);
    out.end();
  }
  out.close();
}

void write_queues(writer& out) {
  out.open("queues");
  for (const auto& [id, gpu] : queues_alive()) {
    out.begin();
    out.number("queue", id);
    out.number("gpu", gpu);
    out.end();
  }
  out.close();
  out.number("events", events_alive());
  u64 descriptors = 0;
  for (const auto& [descriptor, file] : machine().descriptors) {
    const int driver = driver_of(descriptor);
    descriptors += driver != not_ours && driver != of_parent;
  }
  out.number("descriptors", descriptors);
  out.number("page_faults", machine().page_faults);
  out.number("kernels_not_run", machine().kernels_not_run);
}

bool wanted_at_exit = false;

// In one piece, as other processes may append to the same file.
bool append(const char* path, std::string_view text) {
  const int file =
      static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (file < 0) return false;
  while (!text.empty()) {
    const auto done = write(file, text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) break;
    text.remove_prefix(static_cast<std::size_t>(done));
  }
  const int error = errno;
  syscall(SYS_close, file);
  errno = error;
  return text.empty();
}

// Behind the program's exit handlers, in which AMD's libraries still give things back.
[[gnu::destructor]] void at_exit() {
  if (!wanted_at_exit || !opened()) return;  // a forked child that has not used the driver owns nothing
  const char* const path = std::getenv("KFDSIM_LEDGER_AT_EXIT");
  if (!path) return;
  const std::lock_guard lock(mutex());
  const auto line = "{\"pid\": " + std::to_string(getpid()) + ", " + ledger().substr(1) + '\n';
  if (std::strcmp(path, "stderr") == 0) {
    std::fputs(line.c_str(), stderr);
  } else if (!append(path, line)) {
    std::fprintf(stderr, "kfdsim: KFDSIM_LEDGER_AT_EXIT: cannot write the ledger %s: %s\n", path,
                 std::strerror(errno));
  }
}

}  // namespace

std::string ledger() {
  settle();
  writer out;
  out.begin();
  write_gpus(out);
  write_buffers(out);
  write_mappings(out);
  write_queues(out);
  out.end();
  return out.take();
}

void write_ledger_at_exit() { wanted_at_exit = std::getenv("KFDSIM_LEDGER_AT_EXIT") != nullptr; }

}  // namespace kfdsim
