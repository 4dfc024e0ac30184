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

namespace kfdsim {
namespace {

constexpr u32 doorbells_max = 1024;  // of a GPU in a process

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
  if (index < 0) return EINVAL;
  auto& gpu = machine().gpus[static_cast<u32>(index)];
  u32 doorbell = 0;
  while (gpu.doorbells_taken.count(doorbell)) ++doorbell;
  if (doorbell >= doorbells_max) return ENOSPC;
  queue_state queue;
  queue.gpu = static_cast<u32>(index);
  queue.is_aql = wanted.queue_type == queue_type_compute_aql;
  queue.ring = reinterpret_cast<char*>(wanted.ring_base_address);
  queue.ring_bytes = wanted.ring_size;
  queue.write_pointer = reinterpret_cast<u64*>(wanted.write_pointer_address);
  queue.read_pointer = reinterpret_cast<u64*>(wanted.read_pointer_address);
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
