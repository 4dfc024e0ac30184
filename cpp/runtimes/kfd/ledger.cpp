#include "ledger.hpp"

#include <cstdlib>

#include "events.hpp"
#include "hip/ledger_text.hpp"
#include "log.hpp"
#include "machine.hpp"
#include "memory.hpp"
#include "queues.hpp"

namespace kfdsim {
namespace {

using writer = hip::json_writer;

const char* kind_of(const physical& memory) {
  if (memory.foreign) return "of another process";
  if (memory.registered) return "registered";
  if (memory.flags & memory_vram) return "gpu";
  if (memory.flags & memory_doorbell) return "doorbells";
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
  for (const auto& [handle, entry] : machine().allocations) {
    out.begin();
    out.address("handle", handle);
    out.address("address", entry.address);
    write_memory(out, *entry.memory);
    out.number("mapped_by", entry.mapped.size());
    out.end();
  }
  out.close();
  out.open("imports");
  for (const auto& [number, entry] : machine().imports) {
    out.begin();
    out.number("import", number);
    out.number("by_gpu", entry->gpu);
    write_memory(out, *entry->memory);
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
    for (const auto& [address, entry] : table) {
      out.begin();
      out.number("gpu", gpu);
      out.address("address", address);
      out.number("size", entry.size);
      out.flag("readable", entry.readable);
      out.flag("writable", entry.writable);
      out.number("import", entry.import);
      out.end();
    }
    ++gpu;
  }
  out.close();
  out.open("managed");
  for (const auto& [address, entry] : machine().managed) {
    out.begin();
    out.address("address", address);
    out.number("size", entry.last - address + 1);
    out.address("access", entry.access | entry.access_in_place);
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
    descriptors += driver != not_driver && driver != of_parent;
  }
  out.number("descriptors", descriptors);
  out.number("page_faults", machine().page_faults);
  out.number("kernels_not_run", machine().kernels_not_run);
  out.number("kernels_refused", machine().kernels_refused);
}

bool wanted_at_exit = false;

// After the program's exit handlers, in which AMD's libraries still free objects.
[[gnu::destructor]] void at_exit() {
  if (!opened()) return;  // a forked child that has not used the driver owns nothing
  const std::lock_guard lock(mutex());
  if (const u64 launches = machine().kernels_not_run)
    log(0,
        "%llu launches of kernels were not run: there is no GPU. KFDSIM_REFUSE_KERNELS=1 makes them errors",
        static_cast<unsigned long long>(launches));
  if (const u64 launches = machine().kernels_refused)
    log(0, "%llu launches of kernels were refused: there is no GPU",
        static_cast<unsigned long long>(launches));
  if (wanted_at_exit) hip::write_ledger("kfdsim", "KFDSIM_LEDGER_AT_EXIT", ledger());
}

}  // namespace

std::string ledger() {
  free_unshared();
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
