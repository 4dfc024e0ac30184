// The kernel's interface, linux/kfd_ioctl.h: the only thing that this library shares with AMD's software.
//
// Declarations that headers before Linux 6.6 lack are here, as in the newer headers.
#pragma once

#include <linux/kfd_ioctl.h>

#include <cstdint>

namespace kfdsim {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i64 = std::int64_t;

// The union of kfd_event_data begins with this for signals since Linux 6.6; it was unused before.
inline u64& last_age(kfd_event_data& data) { return *reinterpret_cast<u64*>(&data); }

}  // namespace kfdsim

#ifndef AMDKFD_IOC_EXPORT_DMABUF
struct kfd_ioctl_export_dmabuf_args {
  __u64 handle;
  __u32 flags;
  __u32 dmabuf_fd;
};
#define AMDKFD_IOC_EXPORT_DMABUF AMDKFD_IOWR(0x24, struct kfd_ioctl_export_dmabuf_args)
#endif

#ifndef AMDKFD_IOC_RUNTIME_ENABLE
struct kfd_ioctl_runtime_enable_args {
  __u64 r_debug;
  __u32 mode_mask;
  __u32 capabilities_mask;
};
#define AMDKFD_IOC_RUNTIME_ENABLE AMDKFD_IOWR(0x25, struct kfd_ioctl_runtime_enable_args)
#endif
