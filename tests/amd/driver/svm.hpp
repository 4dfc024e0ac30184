// Managed memory: which GPUs may reach which ranges of the program's memory, and where its pages prefer to
// be.
#pragma once

#include "machine.hpp"

namespace standin {

struct VirtualMemory {
  bool present, readable;
  bool of_devices;  // some of it is the stand-in's
};
VirtualMemory look_at(u64 start, u64 size);  // this process's own memory

bool svm_accessible(u32 gpu, u64 address);
int svm_ioctl(kfd_ioctl_svm_args* arguments);
void svm_forget(u64 start, u64 size);  // memory that is unmapped loses its attributes

}  // namespace standin
