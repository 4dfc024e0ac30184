#include "events.hpp"

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <ctime>

#include "kfd.hpp"

namespace standin {

namespace {

constexpr u32 kSignalEvent = 0;  // KFD_IOC_EVENT_SIGNAL
constexpr size_t kEvents = 4096 + 64;
constexpr u32 kSlots = 4096;
constexpr u64 kEventPage = 0x8000000000000000;
constexpr u32 kForever = 0xffffffff;

struct Event {
  u32 type;
  bool resets_itself;
  bool is_set = false;
  u64 age = 1;
};

// Never destroyed: threads wait on these while the process exits.
auto& events = *new std::map<u32, Event>;
auto& changed = *new std::condition_variable_any;
u32 next_event = 1;

bool ready(const Event& event, const kfd_event_data& wanted) {
  const u64 seen = wanted.signal_event_data.last_event_age;
  return event.is_set || (event.type == kSignalEvent && seen && seen != event.age);
}

}  // namespace

u64 now() {
  timespec time;
  clock_gettime(CLOCK_BOOTTIME, &time);
  return static_cast<u64>(time.tv_sec) * 1000000000 + static_cast<u64>(time.tv_nsec);
}

u64 gpu_clock() { return now() / 10; }

void complete(u64 signal, u64 started) {
  if (!signal) return;
  auto* done = reinterpret_cast<Signal*>(signal);
  done->started = started;
  done->ended = gpu_clock();
  const bool awaited = done->mailbox;  // who waits may free the signal as soon as it is counted down
  const u32 event = done->event;
  __atomic_fetch_sub(&done->value, 1, __ATOMIC_SEQ_CST);
  if (awaited) set_event(event);
}

int create_event(kfd_ioctl_create_event_args* arguments) {
  if (events.size() >= kEvents) return fail(ENOSPC);
  const u32 id = next_event++;
  events[id] = Event{arguments->event_type, arguments->auto_reset != 0};
  arguments->event_id = arguments->event_trigger_data = id;
  arguments->event_slot_index = id % kSlots;
  arguments->event_page_offset = kEventPage;
  return 0;
}

int destroy_event(u32 event) {
  if (!events.erase(event)) return fail(EINVAL);
  changed.notify_all();
  return 0;
}

void set_event(u32 event) {
  const auto found = events.find(event);
  if (found == events.end()) return;
  found->second.is_set = true;
  found->second.age++;
  changed.notify_all();
}

int reset_event(u32 event) {
  const auto found = events.find(event);
  if (found == events.end()) return fail(EINVAL);
  found->second.is_set = false;
  return 0;
}

int wait_for_events(kfd_ioctl_wait_events_args* arguments, std::unique_lock<std::recursive_mutex>& lock) {
  auto* wanted = reinterpret_cast<kfd_event_data*>(arguments->events_ptr);
  const bool forever = arguments->timeout == kForever;
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(forever ? 0 : arguments->timeout);
  for (;;) {
    u32 count = 0;
    for (u32 i = 0; i < arguments->num_events; i++) {
      const auto found = events.find(wanted[i].event_id);
      if (found == events.end()) {
        arguments->wait_result = KFD_IOC_WAIT_RESULT_FAIL;
        return fail(EINVAL);
      }
      count += ready(found->second, wanted[i]);
    }
    if (arguments->wait_for_all ? count == arguments->num_events : count > 0) break;
    if (forever) {
      changed.wait(lock);
    } else if (changed.wait_until(lock, until) == std::cv_status::timeout) {
      arguments->wait_result = KFD_IOC_WAIT_RESULT_TIMEOUT;
      return 0;
    }
  }
  for (u32 i = 0; i < arguments->num_events; i++) {
    Event& event = events[wanted[i].event_id];
    auto& seen = wanted[i].signal_event_data.last_event_age;
    if (event.type == kSignalEvent && seen) seen = event.age;
    if (event.resets_itself) event.is_set = false;
  }
  arguments->wait_result = KFD_IOC_WAIT_RESULT_COMPLETE;
  return 0;
}

void forget_events() { events.clear(); }

}  // namespace standin
