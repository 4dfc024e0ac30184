// Managed memory: which GPUs may access which ranges of the program's memory, and the preferred location of
// its pages.
#pragma once

#include "machine.hpp"

namespace kfdsim {

/// What /proc/self/maps says of a range.
struct host_range {
  bool present = true;
  bool readable = true;
  bool of_devices = false;  ///< some of it is a GPU's memory
};
[[nodiscard]] host_range inspect(u64 start, u64 size);

[[nodiscard]] bool managed_accessible(u32 gpu, u64 address);
/// 0, or an errno.
[[nodiscard]] int managed_call(kfd_ioctl_svm_args& arguments);
/// Removes the attributes of unmapped memory.
void forget_managed(u64 start, u64 size);

}  // namespace kfdsim
