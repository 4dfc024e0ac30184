// Kernels: no GPU's code is executed. Those that AMD's libraries launch themselves, to copy and fill, are
// known by name and done by the CPU; a kernel of a user's is reported and not run.
#pragma once

#include "machine.hpp"

namespace standin {

// hsa_kernel_dispatch_packet_t
struct Dispatch {
  uint16_t header, setup, group[3], reserved;
  u32 grid[3], private_size, group_size;
  u64 object, arguments, reserved2, completion;
};
static_assert(sizeof(Dispatch) == 64);

void run_kernel(u32 gpu, const Dispatch& packet);

}  // namespace standin
