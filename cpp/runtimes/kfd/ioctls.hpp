// The ioctls of /dev/kfd.
#pragma once

namespace kfdsim {

/// 0, or -1 and errno, as ioctl() has it.
int kfd_ioctl(unsigned long request, void* arguments);

}  // namespace kfdsim
