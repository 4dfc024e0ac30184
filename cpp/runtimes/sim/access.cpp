#include "access.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <vector>

#include "host_access.hpp"
#include "process.hpp"

namespace hipsim {
namespace {

constexpr std::uint64_t no_end = std::numeric_limits<std::uint64_t>::max();

// Contiguous bytes: in a memory file, or in host memory that the CPU accesses directly.
struct part {
  memory_file* file = nullptr;
  std::uint64_t offset = 0;  ///< in the file; without a file, an address
  std::uint64_t bytes = 0;
};

part part_at(const machine& m, std::uintptr_t address, std::uint64_t bytes) {
  if (const auto piece = containing(m.mappings, address); piece != m.mappings.end()) {
    const auto into = address - piece->first;
    const auto& memory = m.memory_of(piece->second).memory;
    return {memory.file(), memory.offset() + into, std::min(bytes, piece->second.bytes - into)};
  }
  const auto found = containing(m.blocks, address);
  if (found != m.blocks.end() && found->second.kind == block_kind::device) {
    const auto& memory = found->second.memory;
    return {memory.file(), memory.offset() + (address - found->first), bytes};
  }
  return {nullptr, address, bytes};
}

void copy_written(const part& to, const part& from, std::uint64_t bytes) {
  std::vector<std::byte> bounce(std::min<std::uint64_t>(bytes, bounce_bytes));
  for (std::uint64_t done = 0; done < bytes; done += bounce.size()) {
    const auto step = std::min<std::uint64_t>(bytes - done, bounce.size());
    from.file->read(from.offset + done, bounce.data(), step);
    to.file->write(to.offset + done, bounce.data(), step);
  }
}

part behind(const part& all, std::uint64_t bytes) {
  return {all.file, all.offset + bytes, all.bytes - bytes};
}

// Copies only what was written: the rest is zero, and takes no memory in the copy either.
void copy_between_files(const part& to, const part& from, std::uint64_t bytes) {
  const auto end = from.offset + bytes;
  for (auto at = from.offset; at < end;) {
    const auto done = at - from.offset;
    const auto written = from.file->written_from(at, end);
    const auto target = to.offset + done;
    if (written > at && to.file->written_from(target, target + (written - at)) < target + (written - at) &&
        !to.file->discard(target, written - at)) {
      copy_written(behind(to, done), behind(from, done), written - at);
    }
    at = from.file->unwritten_from(written, end);
    if (written < at) {
      const auto before = written - from.offset;
      copy_written(behind(to, before), behind(from, before), at - written);
    }
  }
}

void copy_part(const part& to, const part& from, std::uint64_t bytes) {
  if (!to.file && !from.file) {
    copy_host(to.offset, from.offset, bytes);
  } else if (!to.file) {
    from.file->read(from.offset, reinterpret_cast<void*>(to.offset), bytes);
  } else if (!from.file) {
    to.file->write(to.offset, reinterpret_cast<void*>(from.offset), bytes);
  } else {
    copy_between_files(to, from, bytes);
  }
}

// A pattern of 1, 2 or 4 bytes, repeated to fill a word.
std::uint32_t word_of(std::uint32_t value, int width) {
  if (width == 1) return (value & 0xff) * 0x01010101;
  return width == 2 ? (value & 0xffff) * 0x00010001 : value;
}

void repeat(std::byte* out, std::size_t bytes, std::uint32_t word) {
  for (std::size_t i = 0; i < bytes; i += sizeof word)
    std::memcpy(out + i, &word, std::min(sizeof word, bytes - i));
}

void fill_host(const part& to, std::uint32_t word) {
  std::vector<std::byte> pattern(std::min<std::uint64_t>(to.bytes, bounce_bytes));
  repeat(pattern.data(), pattern.size(), word);
  for (std::uint64_t done = 0; done < to.bytes; done += pattern.size()) {
    write_host(to.offset + done, pattern.data(), std::min<std::uint64_t>(to.bytes - done, pattern.size()));
  }
}

void fill_file(const part& to, std::uint32_t word) {
  std::uint64_t at = to.offset;
  const std::uint64_t end = to.offset + to.bytes;
  std::vector<std::byte> pattern(std::min<std::uint64_t>(to.bytes, bounce_bytes));
  repeat(pattern.data(), pattern.size(), word);
  // Whole pages of zeros are freed: clearing 192 GiB on a laptop must not commit them.
  const std::uint64_t hole = page_ceiling(at);
  const std::uint64_t hole_end = end & ~(page_bytes - 1);
  if (word == 0 && hole < hole_end && to.file->discard(hole, hole_end - hole)) {
    to.file->write(at, pattern.data(), hole - at);
    at = hole_end;
  }
  while (at < end) {
    const auto step = std::min<std::uint64_t>(end - at, pattern.size());
    to.file->write(at, pattern.data(), step);
    at += step;
  }
}

std::string place(std::uintptr_t address) { return "address " + hex(address); }

// Checks for each mapping in a range that one of `devices` has the right.
std::string mapped_refusal(const machine& m, std::uintptr_t address, std::uint64_t bytes, bool write,
                           std::uint64_t devices) {
  while (bytes > 0) {  // counted down: address + bytes may wrap around
    const auto piece = containing(m.mappings, address);
    if (piece == m.mappings.end()) return place(address) + " is not mapped";
    const auto granted = write ? piece->second.writers : piece->second.readers;
    if ((granted & devices) == 0) {
      const bool readable = (piece->second.readers & devices) != 0;
      return "no device that takes part may " + std::string(write ? "write " : "read ") + place(address) +
             (readable ? ": the mapping is read-only" : ": hipMemSetAccess granted nothing");
    }
    const auto here = std::min(bytes, piece->second.bytes - (address - piece->first));
    bytes -= here;
    address += here;
  }
  return {};
}

bool is_reserved(const machine& m, std::uintptr_t address) {
  return containing(m.reservations, address) != m.reservations.end();
}

}  // namespace

std::uint64_t room_at(const machine& m, std::uintptr_t address) {
  if (const auto range = containing(m.reservations, address); range != m.reservations.end()) {
    const bool mapped = containing(m.mappings, address) != m.mappings.end();
    return mapped ? range->second.bytes - (address - range->first) : 0;
  }
  const auto found = containing(m.blocks, address);
  return found == m.blocks.end() ? no_end : found->second.bytes - (address - found->first);
}

bool is_known(const machine& m, std::uintptr_t address) {
  return containing(m.mappings, address) != m.mappings.end() ||
         containing(m.blocks, address) != m.blocks.end();
}

int device_at(const machine& m, std::uintptr_t address) {
  if (const auto piece = containing(m.mappings, address); piece != m.mappings.end()) {
    const int device = m.reported_device(piece->second);
    return device != host_device ? device : m.allocations.at(piece->second.allocation).properties.location_id;
  }
  const auto found = containing(m.blocks, address);
  return found == m.blocks.end() ? host_device : found->second.device;
}

bool is_created_on_host(const machine& m, std::uintptr_t address) {
  const auto piece = containing(m.mappings, address);
  return piece != m.mappings.end() && m.reported_device(piece->second) == host_device;
}

bool is_of_one_device(const machine& m, std::uintptr_t address) {
  const auto found = containing(m.blocks, address);
  return found != m.blocks.end() && found->second.kind == block_kind::device;
}

std::string copy_refusal(const machine& m, std::uintptr_t address, std::uint64_t bytes, bool write,
                         std::uint64_t engines) {
  if (!is_reserved(m, address)) return {};
  return mapped_refusal(m, address, bytes, write, engines);
}

std::string kernel_refusal(const machine& m, std::uintptr_t address, std::uint64_t bytes, bool write,
                           int device) {
  const auto bit = std::uint64_t{1} << device;
  if (is_reserved(m, address)) return mapped_refusal(m, address, bytes, write, bit);
  if (bytes > room_at(m, address))
    return place(address) + " + " + std::to_string(bytes) + " runs past its memory";
  const auto found = containing(m.blocks, address);
  if (found == m.blocks.end()) {
    if (m.has_xnack()) return {};
    return place(address) + " is pageable host memory and XNACK is off";
  }
  const auto& block = found->second;
  const bool open = m.devices[static_cast<std::size_t>(block.device)].open_to_links &&
                    m.profile.linked(device, block.device);
  const bool reachable = block.kind != block_kind::device || block.device == device || open ||
                         (m.devices[static_cast<std::size_t>(device)].peers >> block.device & 1) != 0;
  if (reachable) return {};
  return place(address) + " is memory of device " + std::to_string(block.device) + " and device " +
         std::to_string(device) + " has no peer access to it";
}

void copy_bytes(const machine& m, std::uintptr_t to, std::uintptr_t from, std::uint64_t bytes) {
  while (bytes > 0) {
    const auto target = part_at(m, to, bytes);
    const auto source = part_at(m, from, target.bytes);
    copy_part(target, source, source.bytes);
    to += source.bytes;
    from += source.bytes;
    bytes -= source.bytes;
  }
}

void fill_bytes(const machine& m, std::uintptr_t to, std::uint64_t bytes, std::uint32_t value, int width) {
  auto word = word_of(value, width);
  while (bytes > 0) {
    const auto target = part_at(m, to, bytes);
    if (target.file) {
      fill_file(target, word);
    } else {
      fill_host(target, word);
    }
    word = std::rotr(word,
                     8 * static_cast<int>(target.bytes % sizeof word));  // a piece may end inside an element
    to += target.bytes;
    bytes -= target.bytes;
  }
}

}  // namespace hipsim
