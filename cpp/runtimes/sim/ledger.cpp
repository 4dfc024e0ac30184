#include "ledger.hpp"

#include <cstdlib>

#include "hip/ledger_text.hpp"
#include "process.hpp"

namespace hipsim {
namespace {

const char* name_of(block_kind kind) {
  switch (kind) {
    case block_kind::device:
      return "device";
    case block_kind::pinned:
      return "pinned";
    case block_kind::managed:
      return "managed";
    case block_kind::registered:
      return "registered";
  }
  return "?";
}

using writer = hip::json_writer;

void write_devices(writer& out, const machine& m) {
  out.open("devices");
  for (int i = 0; i < m.device_count(); ++i) {
    out.begin();
    out.number("device", i);
    out.number("used", m.devices[static_cast<std::size_t>(i)].used_bytes);
    out.number("free", m.free_bytes(i));
    out.end();
  }
  out.close();
}

void write_virtual_memory(writer& out, const machine& m) {
  out.open("allocations");
  for (const auto& [id, a] : m.allocations) {
    out.begin();
    out.address("handle", id);
    out.number("device", a.memory->device);
    out.number("size", a.memory->bytes);
    out.number("references", a.references);
    out.number("mappings", a.mappings);
    out.end();
  }
  out.close();
  out.open("reservations");
  for (const auto& [address, r] : m.reservations) {
    out.begin();
    out.address("address", address);
    out.number("size", r.bytes);
    out.number("mappings", r.mappings);
    out.end();
  }
  out.close();
  out.open("mappings");
  for (const auto& [address, piece] : m.mappings) {
    out.begin();
    out.address("address", address);
    out.number("size", piece.bytes);
    out.address("handle", piece.allocation);
    out.address("readers", piece.readers);
    out.address("writers", piece.writers);
    out.end();
  }
  out.close();
}

void write_exported(writer& out, const machine& m) {
  out.open("exported");
  for (const auto* memory : m.exported_memory()) {
    out.begin();
    out.number("device", memory->device);
    out.number("size", memory->bytes);
    out.end();
  }
  out.close();
}

void write_blocks(writer& out, const machine& m) {
  out.open("buffers");
  for (const auto& [address, b] : m.blocks) {
    out.begin();
    out.text("kind", name_of(b.kind));
    out.address("address", address);
    out.number("size", b.bytes);
    out.number("device", b.device);
    out.number("flags", b.flags);
    out.end();
  }
  out.close();
}

void write_peers(writer& out, const machine& m) {
  out.open("peers");
  for (int device = 0; device < m.device_count(); ++device) {
    for (int peer = 0; peer < m.device_count(); ++peer) {
      if ((m.devices[static_cast<std::size_t>(device)].peers >> peer & 1) == 0) continue;
      out.begin();
      out.number("device", device);
      out.number("peer", peer);
      out.end();
    }
  }
  out.close();
}

void write_queues(writer& out, const machine& m) {
  out.open("streams");
  for (const auto& [id, s] : m.streams) {
    out.begin();
    out.address("stream", id);
    out.number("device", s.device);
    out.end();
  }
  out.close();
  out.open("events");
  for (const auto& entry : m.events) {
    out.begin();
    out.address("event", entry.first);
    out.end();
  }
  out.close();
}

constinit bool wanted_at_exit = false;

// After the program's exit handlers and static destructors, which may free memory; a function of std::atexit
// would run before those that were registered before the first call of HIP.
[[gnu::destructor]] void at_exit() {
  // A forked child owns nothing of what it sees.
  if (!wanted_at_exit || process::instance().is_forked_child()) return;
  hip::write_ledger("hipsim", "HIPSIM_LEDGER_AT_EXIT", ledger(*reading()));
}

}  // namespace

std::string ledger(const machine& m) {
  writer out;
  out.begin();
  write_devices(out, m);
  out.number("host_used", m.host.used_bytes);
  write_virtual_memory(out, m);
  write_exported(out, m);
  write_blocks(out, m);
  write_peers(out, m);
  write_queues(out, m);
  out.end();
  return out.take();
}

void write_ledger_at_exit() { wanted_at_exit = std::getenv("HIPSIM_LEDGER_AT_EXIT") != nullptr; }

}  // namespace hipsim
