// The driver's events, on which a thread waits, and HSA's signals, which packets count down.
#pragma once

#include <mutex>
#include <optional>

#include "abi.hpp"

namespace kfdsim {

/// The part of AMD's amd_signal_t that is used here.
struct hsa_signal {
  i64 kind;
  i64 value;
  u64 mailbox;
  u32 event;
  u32 reserved;
  u64 started;
  u64 ended;
};

[[nodiscard]] u64 now_ns();
[[nodiscard]] u64 gpu_clock();  ///< of 100 MHz, as on MI300

/// The value of a signal as a GPU sees it; nothing if the GPU cannot reach it.
[[nodiscard]] std::optional<i64> value_of(u32 gpu, u64 signal);
/// Counts down the signal of a packet that a GPU has finished; 0: it has none.
void complete(u32 gpu, u64 signal, u64 started);

/// Those that return int return 0 or an errno.
[[nodiscard]] int create_event(kfd_ioctl_create_event_args& wanted);
[[nodiscard]] int destroy_event(const kfd_ioctl_destroy_event_args& wanted);
[[nodiscard]] int set_event(const kfd_ioctl_set_event_args& wanted);
[[nodiscard]] int reset_event(const kfd_ioctl_reset_event_args& wanted);
[[nodiscard]] int wait_for_events(kfd_ioctl_wait_events_args& wanted,
                                  std::unique_lock<std::recursive_mutex>& lock);
void signal_event(u32 event);

[[nodiscard]] u64 events_alive();
/// Called in a forked child.
void forget_events();

}  // namespace kfdsim
