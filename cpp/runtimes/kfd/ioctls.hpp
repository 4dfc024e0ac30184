// The ioctls of /dev/kfd.
#pragma once

namespace kfdsim {

/// Returns 0, or -1 and errno, as ioctl() does.
int kfd_ioctl(unsigned long request, void* arguments);

}  // namespace kfdsim
