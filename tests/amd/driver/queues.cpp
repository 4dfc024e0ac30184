// Queues: one thread does the work of all GPUs. It looks at every queue in turn, because a doorbell is only a
// store to memory, which nobody can be told of.
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "events.hpp"
#include "kernels.hpp"
#include "kfd.hpp"

namespace standin {

namespace {

constexpr u32 kDoorbells = 1024;  // of a GPU in a process

struct Queue {
  u32 gpu;
  bool is_aql;
  char* ring;
  u64 ring_size;
  u64 *write_pointer, *read_pointer;
  u64 cursor;
};

auto& queues = *new std::map<u32, Queue>;  // never destroyed: the worker looks at it while the process exits
u32 next_queue = 1;
bool working = false;

// ------------------------------------------------------------------------------------------------ AQL

enum PacketType : u8 { kVendor = 0, kInvalid = 1, kDispatch = 2, kBarrierAnd = 3, kBarrierOr = 5 };
enum VendorFormat : u8 { kPm4 = 1, kBarrierValue = 2 };

struct Barrier {
  uint16_t header, reserved;
  u32 reserved2;
  u64 signals[5], reserved3, completion;
};

struct BarrierValue {
  uint16_t header;
  u8 format, reserved;
  u32 reserved2;
  u64 signal;
  int64_t value, mask;
  u32 condition;
};

bool compare(u32 condition, int64_t left, int64_t right) {  // hsa_signal_condition_t
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

bool all_zero(const Barrier& barrier) {
  for (u64 signal : barrier.signals)
    if (signal && value_of(signal)) return false;
  return true;
}

bool any_zero(const Barrier& barrier) {
  bool waits = false;
  for (u64 signal : barrier.signals) {
    if (signal && !value_of(signal)) return true;
    waits |= signal != 0;
  }
  return !waits;
}

bool may_pass(const BarrierValue& barrier) {
  if (barrier.format != kBarrierValue || !barrier.signal) return true;
  return compare(barrier.condition, value_of(barrier.signal) & barrier.mask, barrier.value);
}

// Whether the packet was done; not, if it has to wait.
bool run_aql(u32 gpu, const char* packet, u8 type) {
  switch (type) {
    case kDispatch:
      run_kernel(gpu, *reinterpret_cast<const Dispatch*>(packet));
      return true;
    case kBarrierAnd:
      return all_zero(*reinterpret_cast<const Barrier*>(packet));
    case kBarrierOr:
      return any_zero(*reinterpret_cast<const Barrier*>(packet));
    case kVendor:
      return may_pass(*reinterpret_cast<const BarrierValue*>(packet));
    default:
      log(0, "an AQL packet of type %u is passed over", type);
      return true;
  }
}

bool aql_step(Queue* queue) {
  if (queue->cursor >= __atomic_load_n(queue->write_pointer, __ATOMIC_ACQUIRE)) return false;
  char* packet = queue->ring + queue->cursor * sizeof(Dispatch) % queue->ring_size;
  auto* header = reinterpret_cast<uint16_t*>(packet);
  const auto type = static_cast<u8>(__atomic_load_n(header, __ATOMIC_ACQUIRE));
  const u64 started = gpu_clock();
  if (type == kInvalid || !run_aql(queue->gpu, packet, type)) return false;
  const u64 completion = reinterpret_cast<Dispatch*>(packet)->completion;
  queue->cursor++;
  __atomic_store_n(header, static_cast<uint16_t>((*header & 0xff00) | kInvalid), __ATOMIC_RELEASE);
  __atomic_store_n(queue->read_pointer, queue->cursor, __ATOMIC_RELEASE);
  complete(completion, started);
  return true;
}

// ------------------------------------------------------------------------------------------------ SDMA

enum SdmaOperation : u8 {
  kNop = 0,
  kCopy = 1,
  kFence = 5,
  kTrap = 6,
  kPollMemory = 8,
  kAtomic = 10,
  kConstantFill = 11,
  kTimestamp = 13,
  kCacheControl = 17
};
constexpr u8 kCopyLinear = 0, kCopyRectangle = 4;
constexpr u32 kAdd64 = 47;

// A packet of SDMA: words, of which two make an address.
struct Sdma {
  u32 gpu;
  u32 word[16];
  u64 address(int i) const { return word[i] | static_cast<u64>(word[i + 1]) << 32; }
  u64 bits(int i, int from, int count) const { return word[i] >> from & ((1ull << count) - 1); }
};

// Each returns the packet's words, or 0 if it has to wait.
u64 copy_linear(const Sdma& packet) {
  const u64 size = packet.bits(1, 0, 30) + 1;
  const bool broadcast = packet.bits(0, 27, 1);
  log(2, "sdma of gpu %u copies %#llx <- %#llx, %llu bytes", packet.gpu,
      static_cast<unsigned long long>(packet.address(5)), static_cast<unsigned long long>(packet.address(3)),
      static_cast<unsigned long long>(size));
  copy(packet.gpu, packet.address(5), packet.address(3), size);
  if (broadcast) copy(packet.gpu, packet.address(7), packet.address(3), size);
  return broadcast ? 9 : 7;
}

u64 copy_rectangle(const Sdma& packet) {
  struct Side {
    u64 address, x, y, z, pitch, slice;
    u64 at(u64 row, u64 layer, u64 unit) const {
      return address + (((z + layer) * slice + (y + row) * pitch + x) << unit);
    }
  };
  const auto side = [&](int i) {
    return Side{packet.address(i),         packet.bits(i + 2, 0, 14),      packet.bits(i + 2, 16, 14),
                packet.bits(i + 3, 0, 11), packet.bits(i + 3, 13, 19) + 1, packet.bits(i + 4, 0, 28) + 1};
  };
  const Side from = side(1), to = side(6);
  const u64 unit = packet.bits(0, 29, 3);
  const u64 width = packet.bits(11, 0, 14) + 1, height = packet.bits(11, 16, 14) + 1;
  const u64 depth = packet.bits(12, 0, 11) + 1;
  for (u64 z = 0; z < depth; z++)
    for (u64 y = 0; y < height; y++) copy(packet.gpu, to.at(y, z, unit), from.at(y, z, unit), width << unit);
  return 13;
}

u64 poll_memory(const Sdma& packet) {
  constexpr u64 kWords = 6;
  if (!packet.bits(0, 31, 1)) return kWords;  // polls a register, to flush what there is not
  const Run target = reach(packet.gpu, packet.address(1), sizeof(u32), false);
  if (!target.bytes) return kWords;
  const u32 value = __atomic_load_n(reinterpret_cast<u32*>(target.bytes), __ATOMIC_ACQUIRE) & packet.word[4];
  const u32 reference = packet.word[3];
  const bool results[] = {
      true,
      value<reference, value <= reference, value == reference, value != reference, value >= reference, value>
          reference,
      true};
  return results[packet.bits(0, 28, 3)] ? kWords : 0;
}

u64 fence(const Sdma& packet) {
  const Run target = reach(packet.gpu, packet.address(1), sizeof(u32), true);
  if (target.bytes) __atomic_store_n(reinterpret_cast<u32*>(target.bytes), packet.word[3], __ATOMIC_SEQ_CST);
  return 4;
}

u64 atomic(const Sdma& packet) {
  if (packet.bits(0, 25, 7) != kAdd64) log(0, "an SDMA atomic %u is passed over", packet.word[0] >> 25);
  const Run target = reach(packet.gpu, packet.address(1), sizeof(u64), true);
  if (target.bytes)
    __atomic_fetch_add(reinterpret_cast<u64*>(target.bytes), packet.address(3), __ATOMIC_SEQ_CST);
  return 8;
}

u64 constant_fill(const Sdma& packet) {
  const u64 unit = 1ull << packet.bits(0, 30, 2);
  fill(packet.gpu, packet.address(1), &packet.word[3], sizeof(u32), packet.bits(4, 0, 30) + unit);
  return 5;
}

u64 timestamp(const Sdma& packet) {
  const Run target = reach(packet.gpu, packet.address(1), sizeof(u64), true);
  if (target.bytes) *reinterpret_cast<u64*>(target.bytes) = gpu_clock();
  return 3;
}

u64 run_sdma(const Sdma& packet) {
  const auto operation = static_cast<u8>(packet.word[0]);
  const auto sub = static_cast<u8>(packet.word[0] >> 8);
  switch (operation) {
    case kNop:
      return 1 + packet.bits(0, 16, 14);
    case kFence:
      return fence(packet);
    case kTrap:
      set_event(static_cast<u32>(packet.bits(1, 0, 28)));
      return 2;
    case kPollMemory:
      return poll_memory(packet);
    case kAtomic:
      return atomic(packet);
    case kConstantFill:
      return constant_fill(packet);
    case kTimestamp:
      return timestamp(packet);
    case kCacheControl:
      return 5;
    case kCopy:
      if (sub == kCopyLinear) return copy_linear(packet);
      if (sub == kCopyRectangle) return copy_rectangle(packet);
      [[fallthrough]];
    default:
      log(0, "SDMA operation %u.%u is passed over", operation, sub);
      return 1;
  }
}

bool sdma_step(Queue* queue) {
  if (queue->cursor >= __atomic_load_n(queue->write_pointer, __ATOMIC_ACQUIRE)) return false;
  Sdma packet{};
  packet.gpu = queue->gpu;
  for (u64 i = 0; i < std::size(packet.word); i++)  // it may go over the ring's end
    memcpy(&packet.word[i], queue->ring + (queue->cursor + i * sizeof(u32)) % queue->ring_size, sizeof(u32));
  const u64 words = run_sdma(packet);
  if (!words) return false;
  queue->cursor += words * sizeof(u32);
  __atomic_store_n(queue->read_pointer, queue->cursor, __ATOMIC_RELEASE);
  return true;
}

// ------------------------------------------------------------------------------------------------ the worker

bool work_once() {
  constexpr int kAtATime = 64;  // packets of one queue before the next has its turn
  std::lock_guard lock(mutex());
  bool did = false;
  for (auto& [id, queue] : queues)
    for (int n = 0; n < kAtATime && (queue.is_aql ? aql_step(&queue) : sdma_step(&queue)); n++) did = true;
  return did;
}

void work() {
  for (unsigned idle = 0;; idle++) {
    if (work_once())
      idle = 0;
    else if (idle > 20000)
      usleep(200);
    else if (idle > 200)
      usleep(30);
    else
      sched_yield();
  }
}

}  // namespace

int create_queue(kfd_ioctl_create_queue_args* arguments) {
  const int index = gpu_of(arguments->gpu_id);
  if (index < 0) return fail(EINVAL);
  Gpu& gpu = machine().gpus[index];
  if (gpu.doorbells_taken >= kDoorbells) return fail(ENOSPC);
  Queue queue{};
  queue.gpu = static_cast<u32>(index);
  queue.is_aql = arguments->queue_type == KFD_IOC_QUEUE_TYPE_COMPUTE_AQL;
  queue.ring = reinterpret_cast<char*>(arguments->ring_base_address);
  queue.ring_size = arguments->ring_size;
  queue.write_pointer = reinterpret_cast<u64*>(arguments->write_pointer_address);
  queue.read_pointer = reinterpret_cast<u64*>(arguments->read_pointer_address);
  queue.cursor = *queue.read_pointer;
  arguments->queue_id = next_queue++;
  arguments->doorbell_offset = gpu.doorbells + sizeof(u64) * gpu.doorbells_taken++;
  queues[arguments->queue_id] = queue;
  if (!working) std::thread(work).detach();
  working = true;
  return 0;
}

int destroy_queue(u32 queue) { return queues.erase(queue) ? 0 : fail(EINVAL); }

void forget_queues() {
  queues.clear();
  working = false;
}

}  // namespace standin
