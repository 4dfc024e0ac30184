// Streams and events. Every call does its work before it returns, so that a stream is busy only while it
// calls a function of the program, and the simulator does not detect a missing synchronisation.
#include <bit>
#include <chrono>

#include "calls/support.hpp"

namespace hipsim::calls {
namespace {

constexpr std::uint64_t legacy_stream = 1;      // hipStreamLegacy
constexpr std::uint64_t per_thread_stream = 2;  // hipStreamPerThread
constexpr int priority_least = 1;
constexpr int priority_greatest = -1;

std::uint64_t now_ns() {
  using namespace std::chrono;
  return static_cast<std::uint64_t>(
      duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count());
}

hipError_t check_stream(const char* function, hipStream_t stream) {
  int device = 0;
  return stream_device(function, *reading(), stream, device);
}

void add_function(hipStream_t stream, std::function<void()> function) {
  const auto place = place_of(*reading(), stream);
  call_behind(place, ahead_of(place), std::move(function));
}

hipError_t bad_event(const char* function, hipEvent_t event) {
  note(function, hex(id_of(event)) + " is no event");
  return hipErrorInvalidHandle;
}

}  // namespace

hipError_t stream_device(const char* function, const machine& m, hipStream_t stream, int& device) {
  device = current_device();
  const auto id = id_of(stream);
  if (id == 0 || id == legacy_stream || id == per_thread_stream) return hipSuccess;
  const auto found = m.streams.find(id);
  if (found == m.streams.end()) {
    if (m.rules.checks_streams) return hipErrorContextIsDestroyed;
    return undefined(function, hex(id) + " is no stream");
  }
  device = found->second.device;
  return hipSuccess;
}

stream_place place_of(const machine& m, hipStream_t stream) {
  const auto id = id_of(stream);
  if (id == per_thread_stream)
    return {reinterpret_cast<std::uintptr_t>(&process::thread()), current_device(), true};
  if (id <= legacy_stream) return {0, current_device(), true};
  const auto found = m.streams.find(id);
  if (found == m.streams.end()) return {id, current_device(), false};
  return {id, found->second.device, found->second.flags != hipStreamNonBlocking};
}

void wait_for_stream(hipStream_t stream) {
  if (unfinished_on(host_device).empty()) return;
  const auto place = place_of(*reading(), stream);
  wait_for(ahead_of(place));
}

hipError_t hipStreamCreateWithPriority(hipStream_t* stream, unsigned int flags, int priority) {
  if (!stream || flags > hipStreamNonBlocking) return hipErrorInvalidValue;
  writing m;
  const auto id = m->new_id();
  // A priority out of range is clamped.
  priority = std::min(std::max(priority, priority_greatest), priority_least);
  m->streams[id] = {current_device(), flags, priority};
  *stream = reinterpret_cast<hipStream_t>(id);
  return hipSuccess;
}

hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned int flags) {
  return hipStreamCreateWithPriority(stream, flags, 0);
}

hipError_t hipStreamCreate(hipStream_t* stream) {
  return hipStreamCreateWithPriority(stream, hipStreamDefault, 0);
}

hipError_t hipDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least) *least = priority_least;
  if (greatest) *greatest = priority_greatest;
  return hipSuccess;
}

hipError_t hipStreamDestroy(hipStream_t stream) {
  wait_for_stream(stream);
  writing m;
  if (m->streams.erase(id_of(stream)) != 0) return hipSuccess;
  if (id_of(stream) <= per_thread_stream) return hipErrorInvalidHandle;  // null and built-in streams stay
  int device = 0;
  return stream_device("hipStreamDestroy", *m, stream, device);
}

hipError_t hipStreamSynchronize(hipStream_t stream) {
  const auto code = check_stream("hipStreamSynchronize", stream);
  if (code == hipSuccess) wait_for_stream(stream);
  return code;
}

hipError_t hipStreamQuery(hipStream_t stream) {
  if (const auto code = check_stream("hipStreamQuery", stream); code != hipSuccess) return code;
  return ahead_of(place_of(*reading(), stream)).empty() ? hipSuccess : hipErrorNotReady;
}

hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned int flags) {
  if (flags > 1) return hipErrorInvalidValue;  // 1: hipEventWaitExternal
  if (!event) return hipErrorInvalidHandle;
  if (!reading()->events.contains(id_of(event))) return bad_event("hipStreamWaitEvent", event);
  if (const auto code = check_stream("hipStreamWaitEvent", stream); code != hipSuccess)
    return code == hipErrorContextIsDestroyed ? hipErrorInvalidHandle : code;
  const auto [place, recorded] = [&] {
    const reading m;
    const auto found = m->events.find(id_of(event));
    return std::pair(place_of(*m, stream),
                     found == m->events.end() ? host_functions{} : found->second.before);
  }();
  if (have_returned(recorded)) return hipSuccess;
  auto before = ahead_of(place);
  before.insert(before.end(), recorded.begin(), recorded.end());
  call_behind(place, std::move(before), {});
  return hipSuccess;
}

hipError_t hipStreamAddCallback(hipStream_t stream, hipStreamCallback_t callback, void* userData,
                                unsigned int flags) {
  if (!callback || flags != 0) return hipErrorInvalidValue;
  const auto code = check_stream("hipStreamAddCallback", stream);
  if (code == hipSuccess) add_function(stream, [=] { callback(stream, hipSuccess, userData); });
  return code;
}

hipError_t hipLaunchHostFunc(hipStream_t stream, hipHostFn_t function, void* userData) {
  if (!function) return hipErrorInvalidValue;
  const auto code = check_stream("hipLaunchHostFunc", stream);
  if (code == hipSuccess) add_function(stream, [=] { function(userData); });
  return code;
}

hipError_t hipStreamGetFlags(hipStream_t stream, unsigned int* flags) {
  if (!flags || !stream) return hipErrorInvalidValue;
  if (const auto code = check_stream("hipStreamGetFlags", stream); code != hipSuccess) return code;
  const reading m;
  const auto found = m->streams.find(id_of(stream));
  *flags = found == m->streams.end() ? hipStreamDefault : found->second.flags;
  return hipSuccess;
}

hipError_t hipStreamGetPriority(hipStream_t stream, int* priority) {
  if (!priority) return hipErrorInvalidValue;
  if (const auto code = check_stream("hipStreamGetPriority", stream); code != hipSuccess) return code;
  const reading m;
  const auto found = m->streams.find(id_of(stream));
  *priority = found == m->streams.end() ? 0 : found->second.priority;
  return hipSuccess;
}

hipError_t hipStreamGetDevice(hipStream_t stream, hipDevice_t* device) {
  if (!device) return hipErrorInvalidValue;
  return stream_device("hipStreamGetDevice", *reading(), stream, *device);
}

hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned int flags) {
  constexpr unsigned int scopes = 0xe0000000;  // of release, of which an event has one
  constexpr unsigned int known = scopes | 7;   // blocking, no timing, interprocess
  const bool shared_and_timed =
      (flags & (hipEventDisableTiming | hipEventInterprocess)) == hipEventInterprocess;
  process::thread().unrecorded = !event;  // as in AMD's library
  if (!event || (flags & ~known) != 0 || shared_and_timed) return hipErrorInvalidValue;
  if (std::popcount(flags & scopes) > 1) return hipErrorInvalidValue;
  writing m;
  const auto id = m->new_id();
  m->events[id].device = current_device();
  m->events[id].flags = flags;
  *event = reinterpret_cast<hipEvent_t>(id);
  return hipSuccess;
}

hipError_t hipEventCreate(hipEvent_t* event) { return hipEventCreateWithFlags(event, 0); }

hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
  if (const auto code = check_stream("hipEventRecord", stream); code != hipSuccess) return code;
  writing m;
  const auto found = m->events.find(id_of(event));
  if (found == m->events.end()) return bad_event("hipEventRecord", event);
  int device = 0;
  (void)stream_device("hipEventRecord", *m, stream, device);
  if (found->second.device != device) return hipErrorInvalidHandle;
  found->second.recorded = true;
  found->second.before = ahead_of(place_of(*m, stream));
  found->second.recorded_ns = now_ns();
  return hipSuccess;
}

hipError_t hipEventRecordWithFlags(hipEvent_t event, hipStream_t stream, unsigned int flags) {
  return flags > 1 ? hipErrorInvalidValue : hipEventRecord(event, stream);
}

hipError_t hipEventQuery(hipEvent_t event) {
  const reading m;
  const auto found = m->events.find(id_of(event));
  if (found == m->events.end()) return bad_event("hipEventQuery", event);
  return have_returned(found->second.before) ? hipSuccess : hipErrorNotReady;
}

hipError_t hipEventSynchronize(hipEvent_t event) {
  host_functions before;
  {
    const reading m;
    const auto found = m->events.find(id_of(event));
    if (found == m->events.end()) return bad_event("hipEventSynchronize", event);
    before = found->second.before;
  }
  wait_for(before);
  return hipSuccess;
}

hipError_t hipEventElapsedTime(float* ms, hipEvent_t start, hipEvent_t stop) {
  if (!ms) return hipErrorInvalidValue;
  const reading m;
  const auto first = m->events.find(id_of(start));
  const auto second = m->events.find(id_of(stop));
  if (first == m->events.end() || second == m->events.end()) return bad_event("hipEventElapsedTime", start);
  const bool timed = ((first->second.flags | second->second.flags) & hipEventDisableTiming) == 0;
  if (!timed || !first->second.recorded || !second->second.recorded) return hipErrorInvalidHandle;
  if (first->second.device != second->second.device) return hipErrorInvalidHandle;
  if (!have_returned(first->second.before) || !have_returned(second->second.before)) return hipErrorNotReady;
  const auto took_ns = static_cast<std::int64_t>(second->second.recorded_ns - first->second.recorded_ns);
  *ms = static_cast<float>(static_cast<double>(took_ns) / 1e6);
  return hipSuccess;
}

hipError_t hipEventDestroy(hipEvent_t event) {
  if (!event) return hipErrorInvalidHandle;
  writing m;
  if (m->events.erase(id_of(event)) != 0) return hipSuccess;
  process::thread().unrecorded = true;  // as in AMD's library
  (void)bad_event("hipEventDestroy", event);
  return hipErrorContextIsDestroyed;
}

}  // namespace hipsim::calls
