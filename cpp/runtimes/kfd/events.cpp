#include "events.hpp"

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <map>
#include <vector>

#include "page_tables.hpp"
#include "program_memory.hpp"

namespace kfdsim {
namespace {

constexpr std::size_t events_max = 4096 + 64;
constexpr u32 slots = 4096;
constexpr u64 event_page = 0x8000000000000000;
constexpr u32 no_timeout = 0xffffffff;

struct event_state {
  u32 type = 0;
  bool resets_itself = false;
  bool is_set = false;
  u64 age = 1;
};

// Never destroyed: threads wait on these while the process exits.
auto& events() {
  static auto& all = *new std::map<u32, event_state>;
  return all;
}
auto*& changed() {
  static auto* condition = new std::condition_variable_any;
  return condition;
}
u32 next_event = 1;

bool ready(const event_state& event, const kfd_event_data& wanted) {
  const u64 seen = wanted.last_event_age;
  return event.is_set || (event.type == event_type_signal && seen && seen != event.age);
}

}  // namespace

u64 now_ns() {
  timespec time;
  clock_gettime(CLOCK_BOOTTIME, &time);
  return static_cast<u64>(time.tv_sec) * 1000000000 + static_cast<u64>(time.tv_nsec);
}

u64 gpu_clock() { return now_ns() / 10; }

std::optional<i64> value_of(u32 gpu, u64 signal) {
  auto* const seen = reach_object<hsa_signal>(gpu, signal, right::read);
  if (!seen) return std::nullopt;
  return __atomic_load_n(&seen->value, __ATOMIC_ACQUIRE);
}

void complete(u32 gpu, u64 signal, u64 started) {
  auto* const done = signal ? reach_object<hsa_signal>(gpu, signal, right::write) : nullptr;
  if (!done) return;
  done->started = started;
  done->ended = gpu_clock();
  const bool awaited = done->mailbox;  // a waiting thread may free the signal as soon as it is counted down
  const u32 event = done->event;
  __atomic_fetch_sub(&done->value, 1, __ATOMIC_SEQ_CST);
  if (awaited) signal_event(event);
}

int create_event(kfd_ioctl_create_event_args& wanted) {
  if (events().size() >= events_max) return ENOSPC;
  const u32 id = next_event++;
  events()[id] = event_state{wanted.event_type, wanted.auto_reset != 0};
  wanted.event_id = wanted.event_trigger_data = id;
  wanted.event_slot_index = id % slots;
  wanted.event_page_offset = event_page;
  return 0;
}

int destroy_event(const kfd_ioctl_destroy_event_args& wanted) {
  if (!events().erase(wanted.event_id)) return EINVAL;
  changed()->notify_all();
  return 0;
}

void signal_event(u32 event) {
  const auto found = events().find(event);
  if (found == events().end()) return;
  found->second.is_set = true;
  found->second.age++;
  changed()->notify_all();
}

int set_event(const kfd_ioctl_set_event_args& wanted) {
  if (!events().count(wanted.event_id)) return EINVAL;
  signal_event(wanted.event_id);
  return 0;
}

int reset_event(const kfd_ioctl_reset_event_args& wanted) {
  const auto found = events().find(wanted.event_id);
  if (found == events().end()) return EINVAL;
  found->second.is_set = false;
  return 0;
}

int wait_for_events(kfd_ioctl_wait_events_args& wanted, std::unique_lock<std::recursive_mutex>& lock) {
  std::vector<kfd_event_data> list;
  if (const int error = read_array(&list, wanted.events_ptr, wanted.num_events)) return error;
  const bool forever = wanted.timeout == no_timeout;
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(forever ? 0 : wanted.timeout);
  for (;;) {
    u32 count = 0;
    for (const auto& awaited : list) {
      const auto found = events().find(awaited.event_id);
      if (found == events().end()) {
        wanted.wait_result = wait_fail;
        return EINVAL;
      }
      count += ready(found->second, awaited);
    }
    if (wanted.wait_for_all ? count == wanted.num_events : count > 0) break;
    if (forever) {
      changed()->wait(lock);
    } else if (changed()->wait_until(lock, until) == std::cv_status::timeout) {
      wanted.wait_result = wait_timeout;
      return 0;
    }
  }
  for (auto& awaited : list) {
    auto& event = events()[awaited.event_id];
    auto& seen = awaited.last_event_age;
    if (event.type == event_type_signal && seen) seen = event.age;
    if (event.resets_itself) event.is_set = false;
  }
  wanted.wait_result = wait_complete;
  return write_program(wanted.events_ptr, list.data(), list.size() * sizeof list[0]) ? 0 : EFAULT;
}

u64 events_alive() { return events().size(); }

void forget_events() {
  events().clear();
  changed() = new std::condition_variable_any;  // the parent's has waiters that the child does not have
}

}  // namespace kfdsim
