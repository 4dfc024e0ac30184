// Functions of the program that its streams call (hipStreamAddCallback, hipLaunchHostFunc). Each runs in a
// thread of its own, so that it may wait for what its caller does next. All else in a stream is done when its
// call returns: a call that comes behind such a function waits for it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace hipsim {

/// A stream, as far as it decides who waits for whom.
struct stream_place {
  std::uint64_t id = 0;  ///< 0: a device's null stream
  int device = 0;
  bool blocking = true;  ///< it and the null stream wait for each other
};

struct host_function;
using host_functions = std::vector<std::shared_ptr<const host_function>>;

/// The functions that have not returned yet and that later work at this place waits for. None in the thread
/// of such a function, which would wait for itself.
[[nodiscard]] host_functions ahead_of(const stream_place& place);
/// Those in all streams of a device; host_device: of all devices.
[[nodiscard]] host_functions unfinished_on(int device);

[[nodiscard]] bool have_returned(const host_functions& functions);
void wait_for(const host_functions& functions);

/// Calls a function at a place, once those before it have returned; an empty one only passes on that they
/// have. Throws std::system_error if there can be no thread.
void call_behind(const stream_place& place, host_functions before, std::function<void()> function);

}  // namespace hipsim
