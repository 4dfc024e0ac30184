// One thread does the work of all GPUs. It polls the queues, because a doorbell is only a store to memory, of
// which the thread is not notified.
#include "queues.hpp"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <thread>

#include "machine.hpp"
#include "memory.hpp"
#include "page_tables.hpp"

namespace kfdsim {
namespace {

constexpr u32 doorbells_max = doorbell_bytes / sizeof(u64);  // of a GPU in a process
constexpr u32 ring_bytes_min = 1024;
constexpr u32 priority_max = 15;
constexpr u32 sdma_engines = 8;  // of a GPU, those for links among them: hipplan/machines/topology.py

// Never destroyed: the worker polls them while the process exits.
auto& queues() {
  static auto& all = *new std::map<u32, queue_state>;
  return all;
}
u32 next_queue = 1;
bool working = false;

bool work_once() {
  constexpr int at_a_time = 64;  // packets of one queue before the next has its turn
  const std::lock_guard lock(mutex());
  bool did = false;
  for (auto& [id, queue] : queues()) {
    for (int n = 0; n < at_a_time && (queue.is_aql ? aql_step(queue) : sdma_step(queue)); ++n) did = true;
  }
  return did;
}

[[noreturn]] void work() {
  for (unsigned idle = 0;; ++idle) {
    if (work_once()) {
      idle = 0;
    } else if (idle > 20000) {
      usleep(200);
    } else if (idle > 200) {
      usleep(30);
    } else {
      sched_yield();
    }
  }
}

bool has_valid_properties(const kfd_ioctl_create_queue_args& wanted) {
  const u32 size = wanted.ring_size;
  const bool is_known = wanted.queue_type == queue_type_compute_aql || wanted.queue_type == queue_type_sdma ||
                        wanted.queue_type == queue_type_sdma_xgmi ||
                        (wanted.queue_type == queue_type_sdma_by_engine && wanted.sdma_engine < sdma_engines);
  return is_known && size >= ring_bytes_min && (size & (size - 1)) == 0 && wanted.queue_percentage <= 100 &&
         wanted.queue_priority <= priority_max && wanted.ring_base_address % alignof(u64) == 0 &&
         wanted.write_pointer_address % alignof(u64) == 0 && wanted.read_pointer_address % alignof(u64) == 0;
}

// A part of a queue, which the queue's GPU must have mapped, as Linux 6.12 demands; null: it has not.
char* part_of(queue_state* queue, u64 address, u64 size) {
  const auto [memory, bytes] = mapped_at(queue->gpu, address, size);
  if (bytes) queue->held.push_back(memory);
  return bytes;
}

// The worker blocks all signals: they must go to the program's threads.
void start_working() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(work).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  working = true;
}

}  // namespace

int create_queue(kfd_ioctl_create_queue_args& wanted) {
  const int index = gpu_of(wanted.gpu_id);
  if (index < 0 || !has_valid_properties(wanted)) return EINVAL;
  auto& gpu = machine().gpus[static_cast<u32>(index)];
  u32 doorbell = 0;
  while (gpu.doorbells_taken.count(doorbell)) ++doorbell;
  if (doorbell >= doorbells_max) return ENOSPC;
  queue_state queue;
  queue.gpu = static_cast<u32>(index);
  queue.is_aql = wanted.queue_type == queue_type_compute_aql;
  queue.ring_bytes = wanted.ring_size;
  queue.ring = part_of(&queue, wanted.ring_base_address, wanted.ring_size);
  queue.write_pointer = reinterpret_cast<u64*>(part_of(&queue, wanted.write_pointer_address, sizeof(u64)));
  queue.read_pointer = reinterpret_cast<u64*>(part_of(&queue, wanted.read_pointer_address, sizeof(u64)));
  if (!queue.ring || !queue.write_pointer || !queue.read_pointer) return EINVAL;
  for (auto* const memory : queue.held) ++memory->references;
  queue.cursor = *queue.read_pointer;
  queue.doorbell = doorbell;
  gpu.doorbells_taken.insert(doorbell);
  wanted.queue_id = next_queue++;
  wanted.doorbell_offset = gpu.doorbells + sizeof(u64) * doorbell;
  queues()[wanted.queue_id] = queue;
  if (!working) start_working();
  return 0;
}

int destroy_queue(const kfd_ioctl_destroy_queue_args& wanted) {
  const auto found = queues().find(wanted.queue_id);
  if (found == queues().end()) return EINVAL;
  machine().gpus[found->second.gpu].doorbells_taken.erase(found->second.doorbell);
  for (auto* const memory : found->second.held) put(memory);
  queues().erase(found);
  return 0;
}

std::map<u32, u32> queues_alive() {
  std::map<u32, u32> found;
  for (const auto& [id, queue] : queues()) found[id] = queue.gpu;
  return found;
}

void forget_queues() {
  queues().clear();
  working = false;
}

}  // namespace kfdsim
