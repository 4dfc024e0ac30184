// Managed memory: which GPUs may access which ranges of the program's memory, and the preferred location of
// its pages.
#pragma once

#include "machine.hpp"

namespace kfdsim {

/// How many of the bytes from an address on a GPU can access there.
[[nodiscard]] u64 managed_bytes(u32 gpu, u64 address, u64 wanted, right needed);
/// The attributes follow the arguments; all have `bytes`. Returns 0, or an errno.
[[nodiscard]] int managed_call(kfd_ioctl_svm_args* arguments, u64 bytes);
/// Removes the attributes of unmapped memory.
void forget_managed(u64 start, u64 size);

}  // namespace kfdsim
