// Queues, and the packets in them.
#pragma once

#include <map>
#include <vector>

#include "machine.hpp"

namespace kfdsim {

struct queue_state {
  u32 gpu = 0;
  bool is_aql = false;
  char* ring = nullptr;
  u64 ring_bytes = 0;
  u64* write_pointer = nullptr;
  u64* read_pointer = nullptr;
  u64 cursor = 0;
  std::vector<bool> done_before;  ///< parts of the packet at the cursor, if it waits
  u32 doorbell = 0;
  std::vector<physical*> held;  ///< memory of the ring and the pointers, which stays as long as the queue
};

/// 0, or an errno.
[[nodiscard]] int create_queue(kfd_ioctl_create_queue_args& wanted);
[[nodiscard]] int destroy_queue(const kfd_ioctl_destroy_queue_args& wanted);

/// Runs the next packet of a queue. Returns false if there is none, or it has to wait.
bool aql_step(queue_state& queue);
bool sdma_step(queue_state& queue);

[[nodiscard]] std::map<u32, u32> queues_alive();  ///< id -> GPU
/// Called in a forked child.
void forget_queues();

}  // namespace kfdsim
