// SDMA: packets of 32-bit words; two words make an address.
#include <cstring>
#include <iterator>

#include "events.hpp"
#include "log.hpp"
#include "page_tables.hpp"
#include "queues.hpp"

namespace kfdsim {
namespace {

enum operation : u8 {
  op_nop = 0,
  op_copy = 1,
  op_fence = 5,
  op_trap = 6,
  op_poll_memory = 8,
  op_atomic = 10,
  op_constant_fill = 11,
  op_timestamp = 13,
  op_cache_control = 17
};
constexpr u8 copy_of_bytes = 0;
constexpr u8 copy_of_rectangle = 4;
constexpr u32 add_64 = 47;

struct sdma_packet {
  u32 gpu;
  u32 word[16];
  [[nodiscard]] u64 address(int i) const { return word[i] | static_cast<u64>(word[i + 1]) << 32; }
  [[nodiscard]] u64 bits(int i, int from, int count) const { return word[i] >> from & ((1ull << count) - 1); }
};

// Each returns the packet's words, or 0 if it has to wait.

u64 copy_bytes(const sdma_packet& packet) {
  const u64 size = packet.bits(1, 0, 30) + 1;
  const bool broadcast = packet.bits(0, 27, 1);
  log(2, "sdma of gpu %u copies %#llx <- %#llx, %llu bytes", packet.gpu,
      static_cast<unsigned long long>(packet.address(5)), static_cast<unsigned long long>(packet.address(3)),
      static_cast<unsigned long long>(size));
  copy(packet.gpu, packet.address(5), packet.address(3), size);
  if (broadcast) copy(packet.gpu, packet.address(7), packet.address(3), size);
  return broadcast ? 9 : 7;
}

struct rectangle_side {
  u64 address, x, y, z, pitch, slice;
  [[nodiscard]] u64 at(u64 row, u64 layer, u64 unit) const {
    return address + (((z + layer) * slice + (y + row) * pitch + x) << unit);
  }
};

u64 copy_rectangle(const sdma_packet& packet) {
  const auto side = [&](int i) {
    return rectangle_side{
        packet.address(i),         packet.bits(i + 2, 0, 14),      packet.bits(i + 2, 16, 14),
        packet.bits(i + 3, 0, 11), packet.bits(i + 3, 13, 19) + 1, packet.bits(i + 4, 0, 28) + 1};
  };
  const auto from = side(1);
  const auto to = side(6);
  const u64 unit = packet.bits(0, 29, 3);
  const u64 width = packet.bits(11, 0, 14) + 1;
  const u64 height = packet.bits(11, 16, 14) + 1;
  const u64 depth = packet.bits(12, 0, 11) + 1;
  bool reached_all = true;
  for (u64 z = 0; z < depth; ++z) {
    for (u64 y = 0; y < height && reached_all; ++y)
      reached_all = copy(packet.gpu, to.at(y, z, unit), from.at(y, z, unit), width << unit);
  }
  return 13;
}

bool holds(u64 condition, u32 value, u32 reference) {
  switch (condition) {
    case 1:
      return value < reference;
    case 2:
      return value <= reference;
    case 3:
      return value == reference;
    case 4:
      return value != reference;
    case 5:
      return value >= reference;
    case 6:
      return value > reference;
    default:
      return true;
  }
}

u64 poll_memory(const sdma_packet& packet) {
  constexpr u64 words = 6;
  if (!packet.bits(0, 31, 1)) return words;  // polls a register to flush a cache that does not exist here
  const auto* const target = reach_object<u32>(packet.gpu, packet.address(1), right::read);
  if (!target) return words;
  const u32 value = __atomic_load_n(target, __ATOMIC_ACQUIRE) & packet.word[4];
  return holds(packet.bits(0, 28, 3), value, packet.word[3]) ? words : 0;
}

u64 write_fence(const sdma_packet& packet) {
  auto* const target = reach_object<u32>(packet.gpu, packet.address(1), right::write);
  if (target) __atomic_store_n(target, packet.word[3], __ATOMIC_SEQ_CST);
  return 4;
}

u64 add_atomically(const sdma_packet& packet) {
  if (packet.bits(0, 25, 7) != add_64) log(0, "an SDMA atomic %u is passed over", packet.word[0] >> 25);
  auto* const target = reach_object<u64>(packet.gpu, packet.address(1), right::write);
  if (target) __atomic_fetch_add(target, packet.address(3), __ATOMIC_SEQ_CST);
  return 8;
}

u64 fill_constant(const sdma_packet& packet) {
  const u64 unit = 1ull << packet.bits(0, 30, 2);
  fill(packet.gpu, packet.address(1), &packet.word[3], sizeof(u32), packet.bits(4, 0, 30) + unit);
  return 5;
}

u64 write_timestamp(const sdma_packet& packet) {
  auto* const target = reach_object<u64>(packet.gpu, packet.address(1), right::write);
  if (target) *target = gpu_clock();
  return 3;
}

u64 run(const sdma_packet& packet) {
  const auto operation = static_cast<u8>(packet.word[0]);
  const auto sub = static_cast<u8>(packet.word[0] >> 8);
  switch (operation) {
    case op_nop:
      return 1 + packet.bits(0, 16, 14);
    case op_fence:
      return write_fence(packet);
    case op_trap:
      signal_event(static_cast<u32>(packet.bits(1, 0, 28)));
      return 2;
    case op_poll_memory:
      return poll_memory(packet);
    case op_atomic:
      return add_atomically(packet);
    case op_constant_fill:
      return fill_constant(packet);
    case op_timestamp:
      return write_timestamp(packet);
    case op_cache_control:
      return 5;
    case op_copy:
      if (sub == copy_of_bytes) return copy_bytes(packet);
      if (sub == copy_of_rectangle) return copy_rectangle(packet);
      [[fallthrough]];
    default:
      log(0, "SDMA operation %u.%u is passed over", operation, sub);
      return 1;
  }
}

}  // namespace

bool sdma_step(queue_state& queue) {
  const u64 written = __atomic_load_n(queue.write_pointer, __ATOMIC_ACQUIRE);
  if (queue.cursor >= written || written - queue.cursor > queue.ring_bytes) return false;
  sdma_packet packet{};
  packet.gpu = queue.gpu;
  for (u64 i = 0; i < std::size(packet.word); ++i) {  // a packet may wrap around the ring's end
    const u64 at = (queue.cursor / sizeof(u32) + i) * sizeof(u32) % queue.ring_bytes;
    std::memcpy(&packet.word[i], queue.ring + at, sizeof(u32));
  }
  const u64 words = run(packet);
  if (!words) return false;
  queue.cursor += words * sizeof(u32);
  __atomic_store_n(queue.read_pointer, queue.cursor, __ATOMIC_RELEASE);
  return true;
}

}  // namespace kfdsim
