#include "driver_call.hpp"

#include <algorithm>

namespace hipplan {

row_outcome make_row(hip::runtime& runtime, std::span<driver_call> calls, deadline& stop) noexcept {
  row_outcome out;
  try {
    // The call after this one is read before it: behind it, that would take as long as all the rest here.
    auto next = calls.empty() ? driver_call{} : calls.front();
    while (out.done < calls.size()) {
      const auto call = next;
      next = calls[std::min(out.done + 1, calls.size() - 1)];
      auto handle = call.handle;  // on the stack: of any other place the simulator asks the kernel
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
