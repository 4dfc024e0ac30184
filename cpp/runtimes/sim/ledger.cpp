#include "ledger.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

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

// Just enough of a JSON writer: objects in a list, fields in an object.
class writer {
 public:
  void open(const char* key) { out_ += separator() + '"' + key + "\": [", first_ = true; }
  void close() { out_ += ']', first_ = false; }
  void begin() { out_ += separator() + '{', first_ = true; }
  void end() { out_ += '}', first_ = false; }
  void number(const char* key, long long value) { field(key, std::to_string(value)); }
  void bytes(const char* key, std::uint64_t value) { field(key, std::to_string(value)); }
  void address(const char* key, std::uint64_t value) { field(key, '"' + hex(value) + '"'); }
  void text(const char* key, const char* value) { field(key, '"' + std::string(value) + '"'); }
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

void write_devices(writer& out, const machine& m) {
  out.open("devices");
  for (int i = 0; i < m.device_count(); ++i) {
    out.begin();
    out.number("device", i);
    out.bytes("used", m.devices[static_cast<std::size_t>(i)].used_bytes);
    out.bytes("free", m.free_bytes(i));
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
    out.bytes("size", a.memory->bytes);
    out.number("references", a.references);
    out.number("mappings", a.mappings);
    out.end();
  }
  out.close();
  out.open("reservations");
  for (const auto& [address, r] : m.reservations) {
    out.begin();
    out.address("address", address);
    out.bytes("size", r.bytes);
    out.bytes("mappings", r.mappings);
    out.end();
  }
  out.close();
  out.open("mappings");
  for (const auto& [address, piece] : m.mappings) {
    out.begin();
    out.address("address", address);
    out.bytes("size", piece.bytes);
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
    out.bytes("size", memory->bytes);
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
    out.bytes("size", b.bytes);
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

// In one piece, as other processes may append to the same file.
bool append(const char* path, std::string_view text) {
  const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0) return false;
  while (!text.empty()) {
    const auto done = write(file, text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) break;
    text.remove_prefix(static_cast<std::size_t>(done));
  }
  const int error = errno;
  close(file);
  errno = error;
  return text.empty();
}

// Behind the program's exit handlers and static destructors, which may give memory back; std::atexit would be
// before those that were registered before the first call of HIP.
[[gnu::destructor]] void at_exit() {
  // A forked child owns nothing of what it sees.
  if (!wanted_at_exit || process::instance().is_forked_child()) return;
  const char* path = std::getenv("HIPSIM_LEDGER_AT_EXIT");
  if (!path) return;
  const auto line = "{\"pid\": " + std::to_string(getpid()) + ", " + ledger(*reading()).substr(1) + '\n';
  if (std::strcmp(path, "stderr") == 0) {
    std::fputs(line.c_str(), stderr);
  } else if (!append(path, line)) {
    std::fprintf(stderr, "hipsim: HIPSIM_LEDGER_AT_EXIT: cannot write the ledger %s: %s\n", path,
                 std::strerror(errno));
  }
}

}  // namespace

std::string ledger(const machine& m) {
  writer out;
  out.begin();
  write_devices(out, m);
  out.bytes("host_used", m.host.used_bytes);
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
