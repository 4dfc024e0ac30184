// Kernels: no GPU code is executed. The kernels that AMD's libraries launch themselves, to copy and fill, are
// known by name and run on the CPU; a user's kernel is reported and not run.
#pragma once

#include <vector>

#include "abi.hpp"

namespace kfdsim {

/// hsa_kernel_dispatch_packet_t
struct dispatch_packet {
  u16 header, setup, group[3], reserved;
  u32 grid[3], private_size, group_size;
  u64 object, arguments, reserved2, completion;
};
static_assert(sizeof(dispatch_packet) == 64);

/// Returns false if the kernel waits, and is run again later. done_before: which of its parts it has done
/// until then; empty when a packet is run for the first time.
[[nodiscard]] bool run_kernel(u32 gpu, const dispatch_packet& packet, std::vector<bool>* done_before);

}  // namespace kfdsim
