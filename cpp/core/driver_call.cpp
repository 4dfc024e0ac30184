#include "driver_call.hpp"

#include <algorithm>

namespace hipplan {

calls_outcome make_calls(hip::runtime& runtime, std::span<driver_call> calls, deadline& stop) noexcept {
  calls_outcome out;
  try {
    // The next call is read before this one is made: after it, the caches hold the driver's data, and reading
    // would take as long as all the rest of this loop.
    auto next = calls.empty() ? driver_call{} : calls.front();
    while (out.done < calls.size()) {
      const auto call = next;
      next = calls[std::min(out.done + 1, calls.size() - 1)];
      auto handle =
          call.handle;  // on the stack: the simulator asks the kernel whether other memory is writable
      out.result = call.make(runtime, handle);
      calls[out.done].handle = handle;
      if (out.result != hip::hipSuccess) [[unlikely]]
        break;
      ++out.done;
      stop.call_made();
      if (stop.over()) break;
    }
  } catch (...) {
    out.thrown = std::current_exception();
  }
  return out;
}

}  // namespace hipplan
