// AQL: packets of 64 bytes with the layouts of hsa.h, and ROCr's own barrier on a value.
#include "events.hpp"
#include "kernels.hpp"
#include "log.hpp"
#include "queues.hpp"

namespace kfdsim {
namespace {

enum packet_type : u8 {
  vendor_specific = 0,
  invalid = 1,
  kernel_dispatch = 2,
  barrier_and = 3,
  barrier_or = 5
};
constexpr u8 format_barrier_value = 2;

struct barrier_packet {
  u16 header;
  u16 reserved;
  u32 reserved2;
  u64 signals[5];
  u64 reserved3;
  u64 completion;
};

struct barrier_value_packet {
  u16 header;
  u8 format;
  u8 reserved;
  u32 reserved2;
  u64 signal;
  i64 value;
  i64 mask;
  u32 condition;
};

bool holds(u32 condition, i64 left, i64 right) {  // hsa_signal_condition_t
  switch (condition) {
    case 0:
      return left == right;
    case 1:
      return left != right;
    case 2:
      return left < right;
    default:
      return left >= right;
  }
}

// A signal that the GPU cannot reach is passed over, after its page fault.
bool all_zero(u32 gpu, const barrier_packet& barrier) {
  for (const u64 signal : barrier.signals) {
    if (signal && value_of(gpu, signal).value_or(0)) return false;
  }
  return true;
}

bool any_zero(u32 gpu, const barrier_packet& barrier) {
  bool waits = false;
  for (const u64 signal : barrier.signals) {
    if (signal && !value_of(gpu, signal).value_or(0)) return true;
    waits |= signal != 0;
  }
  return !waits;
}

bool may_pass(u32 gpu, const barrier_value_packet& barrier) {
  if (barrier.format != format_barrier_value || !barrier.signal) return true;
  const auto value = value_of(gpu, barrier.signal);
  return !value || holds(barrier.condition, *value & barrier.mask, barrier.value);
}

// Runs a packet. Returns false if it has to wait.
bool run(queue_state& queue, const char* packet, u8 type) {
  const u32 gpu = queue.gpu;
  switch (type) {
    case kernel_dispatch:
      return run_kernel(gpu, *reinterpret_cast<const dispatch_packet*>(packet), &queue.done_before);
    case barrier_and:
      return all_zero(gpu, *reinterpret_cast<const barrier_packet*>(packet));
    case barrier_or:
      return any_zero(gpu, *reinterpret_cast<const barrier_packet*>(packet));
    case vendor_specific:
      return may_pass(gpu, *reinterpret_cast<const barrier_value_packet*>(packet));
    default:
      log(0, "an AQL packet of type %u is passed over", type);
      return true;
  }
}

}  // namespace

bool aql_step(queue_state& queue) {
  if (queue.cursor >= __atomic_load_n(queue.write_pointer, __ATOMIC_ACQUIRE)) return false;
  char* const packet = queue.ring + queue.cursor * sizeof(dispatch_packet) % queue.ring_bytes;
  auto* const header = reinterpret_cast<u16*>(packet);
  const auto type = static_cast<u8>(__atomic_load_n(header, __ATOMIC_ACQUIRE));
  const u64 started = gpu_clock();
  if (type == invalid || !run(queue, packet, type)) return false;
  queue.done_before.clear();
  const u64 completion = reinterpret_cast<dispatch_packet*>(packet)->completion;
  queue.cursor++;
  __atomic_store_n(header, static_cast<u16>((*header & 0xff00) | invalid), __ATOMIC_RELEASE);
  __atomic_store_n(queue.read_pointer, queue.cursor, __ATOMIC_RELEASE);
  complete(queue.gpu, completion, started);
  return true;
}

}  // namespace kfdsim
