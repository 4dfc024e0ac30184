// Managed memory: which GPUs may reach which ranges of the program's memory, and where its pages prefer to
// be.
#pragma once

#include "machine.hpp"

namespace kfdsim {

/// A part of this process's own memory.
struct host_range {
  bool present = true;
  bool readable = true;
  bool of_devices = false;  ///< some of it is a GPU's
};
[[nodiscard]] host_range look_at(u64 start, u64 size);

[[nodiscard]] bool managed_accessible(u32 gpu, u64 address);
/// 0, or an errno.
[[nodiscard]] int managed_call(kfd_ioctl_svm_args& arguments);
/// Memory that is unmapped loses its attributes.
void forget_managed(u64 start, u64 size);

}  // namespace kfdsim
