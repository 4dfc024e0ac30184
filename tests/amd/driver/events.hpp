// The driver's events, on which a thread waits, and HSA's signals, which packets count down.
#pragma once

#include <mutex>

#include "machine.hpp"

namespace standin {

// amd_signal_t of AMD's ABI, hsa/amd_hsa_signal.h.
struct Signal {
  int64_t kind, value;
  u64 mailbox;
  u32 event, reserved;
  u64 started, ended;
};

u64 now();        // nanoseconds
u64 gpu_clock();  // of 100 MHz, as on MI300

inline int64_t value_of(u64 signal) {
  return __atomic_load_n(&reinterpret_cast<Signal*>(signal)->value, __ATOMIC_ACQUIRE);
}
void complete(u64 signal, u64 started);  // a packet is done; 0: nobody wants to know

int create_event(kfd_ioctl_create_event_args* arguments);
int destroy_event(u32 event);
void set_event(u32 event);
int reset_event(u32 event);
int wait_for_events(kfd_ioctl_wait_events_args* arguments, std::unique_lock<std::recursive_mutex>& lock);

int create_queue(kfd_ioctl_create_queue_args* arguments);
int destroy_queue(u32 queue);

// In a forked child.
void forget_events();
void forget_queues();

}  // namespace standin
