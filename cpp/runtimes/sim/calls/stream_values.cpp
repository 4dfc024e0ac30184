// Streams that wait until a value in memory fulfils a condition, and streams that write one. A wait lasts as
// a function of the program does: later work of the stream waits for it, and so do later writes.
#include <thread>

#include "access.hpp"
#include "calls/support.hpp"

namespace hipsim::calls {
namespace {

enum condition : unsigned int { at_least, equal, any_common, any_in_neither };
constexpr auto between_looks = std::chrono::microseconds(50);

bool holds(unsigned int wanted, std::uint64_t found, std::uint64_t value, std::uint64_t mask) {
  switch (wanted) {
    case at_least:
      return (found & mask) >= value;
    case equal:
      return (found & mask) == value;
    case any_common:
      return (found & mask & value) != 0;
    default:
      return (~((found & mask) | (value & mask)) & mask) != 0;
  }
}

// Why the GPU of a stream cannot use the value; the stream is checked, too.
hipError_t refusal(const char* function, hipStream_t stream, void* ptr, std::uint64_t bytes, bool write) {
  if (!ptr) return hipErrorInvalidValue;
  const reading m;
  int device = 0;
  if (const auto code = stream_device(function, *m, stream, device); code != hipSuccess) return code;
  const auto address = address_of(ptr);
  if (!is_known(*m, address) || wraps(address, bytes) || bytes > room_at(*m, address))
    return hipErrorInvalidValue;
  const auto problem = kernel_refusal(*m, address, bytes, write, device);
  return problem.empty() ? hipSuccess : gpu_fault(function, *m, problem);
}

// Does something at once, or behind the functions that are ahead of it.
template <class Function>
void do_behind(hipStream_t stream, Function function) {
  const auto place = place_of(*reading(), stream);
  if (auto before = ahead_of(place); before.empty()) {
    function();
  } else {
    call_behind(place, std::move(before), function);
  }
}

template <class Value>
hipError_t write_value(const char* function, hipStream_t stream, void* ptr, Value value) {
  if (const auto code = refusal(function, stream, ptr, sizeof value, true); code != hipSuccess) return code;
  do_behind(stream, [=] {
    const reading m;
    if (is_known(*m, address_of(ptr))) copy_bytes(*m, address_of(ptr), address_of(&value), sizeof value);
  });
  return hipSuccess;
}

template <class Value>
bool is_fulfilled(void* ptr, Value value, unsigned int flags, Value mask) {
  const reading m;
  if (!is_known(*m, address_of(ptr))) return true;  // it was freed: nothing can fulfil it any more
  Value found = 0;
  copy_bytes(*m, address_of(&found), address_of(ptr), sizeof found);
  return holds(flags, found, value, mask);
}

template <class Value>
hipError_t wait_value(const char* function, hipStream_t stream, void* ptr, Value value, unsigned int flags,
                      Value mask) {
  if (flags > any_in_neither) return hipErrorInvalidValue;
  if (const auto code = refusal(function, stream, ptr, sizeof value, false); code != hipSuccess) return code;
  const auto place = place_of(*reading(), stream);
  auto before = ahead_of(place);
  if (before.empty() && is_fulfilled(ptr, value, flags, mask)) return hipSuccess;
  call_behind(place, std::move(before), [=] {
    while (!is_fulfilled(ptr, value, flags, mask)) std::this_thread::sleep_for(between_looks);
  });
  return hipSuccess;
}

}  // namespace

hipError_t hipStreamWriteValue32(hipStream_t stream, void* ptr, std::uint32_t value, unsigned int) {
  return write_value("hipStreamWriteValue32", stream, ptr, value);
}

hipError_t hipStreamWriteValue64(hipStream_t stream, void* ptr, std::uint64_t value, unsigned int) {
  return write_value("hipStreamWriteValue64", stream, ptr, value);
}

hipError_t hipStreamWaitValue32(hipStream_t stream, void* ptr, std::uint32_t value, unsigned int flags,
                                std::uint32_t mask) {
  return wait_value("hipStreamWaitValue32", stream, ptr, value, flags, mask);
}

hipError_t hipStreamWaitValue64(hipStream_t stream, void* ptr, std::uint64_t value, unsigned int flags,
                                std::uint64_t mask) {
  return wait_value("hipStreamWaitValue64", stream, ptr, value, flags, mask);
}

}  // namespace hipsim::calls
