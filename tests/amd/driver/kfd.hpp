// The ioctls of /dev/kfd.
#pragma once

#include "machine.hpp"

namespace standin {

int fail(int error);  // sets errno, returns -1
int kfd_ioctl(unsigned long request, void* arguments);

}  // namespace standin
