#include "transfer.hpp"

#include <algorithm>
#include <vector>

#include "queries.hpp"
#include "scoped_device.hpp"

namespace hipplan {
namespace {

std::string moved(std::uintptr_t to, std::uintptr_t from, std::size_t size_bytes) {
  return "dst=" + hexadecimal(to) + ", src=" + hexadecimal(from) + ", size=" + std::to_string(size_bytes);
}

/// For devices without a peer link: there hipMemcpyPeer of HIP on AMD crashes if any other devices have one.
void copy_through_host(hip::runtime& runtime, std::uintptr_t to, device_id to_device, std::uintptr_t from,
                       device_id from_device, std::size_t size_bytes) {
  constexpr std::size_t most_bytes = std::size_t{4} << 20;
  std::vector<std::byte> between(std::min(most_bytes, size_bytes));
  const auto host = reinterpret_cast<std::uintptr_t>(between.data());
  for (std::size_t done = 0; done < size_bytes; done += between.size()) {
    const auto now = std::min(between.size(), size_bytes - done);
    {
      const scoped_device current(runtime, from_device);
      copy(runtime, host, from + done, now);
    }
    const scoped_device current(runtime, to_device);
    copy(runtime, to + done, host, now);
  }
}

}  // namespace

void fill(hip::runtime& runtime, std::uintptr_t address, int value, std::size_t size_bytes) {
  const auto arguments = "dst=" + hexadecimal(address) + ", size=" + std::to_string(size_bytes);
  runtime.check(runtime.hipMemset(pointer_at(address), value, size_bytes), "hipMemset", "a fill", arguments);
  // hipMemset of device memory may return before it is done.
  runtime.check(runtime.hipStreamSynchronize(nullptr), "hipStreamSynchronize", "a fill", arguments);
}

void fill_on(hip::runtime& runtime, device_id device, std::uintptr_t address, int value,
             std::size_t size_bytes) {
  const scoped_device current(runtime, device);
  fill(runtime, address, value, size_bytes);
}

void prefetch(hip::runtime& runtime, std::uintptr_t address, std::size_t size_bytes, device_id to,
              device_id on) {
  const scoped_device current(runtime, on);
  const auto arguments = "ptr=" + hexadecimal(address) + ", size=" + std::to_string(size_bytes);
  runtime.check(runtime.hipMemPrefetchAsync(pointer_at(address), size_bytes, to.value, nullptr),
                "hipMemPrefetchAsync", "a prefetch to " + text(to), arguments);
  runtime.check(runtime.hipStreamSynchronize(nullptr), "hipStreamSynchronize", "a prefetch", arguments);
}

void copy(hip::runtime& runtime, std::uintptr_t to, std::uintptr_t from, std::size_t size_bytes) {
  runtime.check(runtime.hipMemcpy(pointer_at(to), pointer_at(from), size_bytes, hip::hipMemcpyDefault),
                "hipMemcpy", "a copy", moved(to, from, size_bytes));
  // Between two devices hipMemcpy may return before it is done.
  runtime.check(runtime.hipStreamSynchronize(nullptr), "hipStreamSynchronize", "a copy",
                moved(to, from, size_bytes));
}

void copy_peer(hip::runtime& runtime, std::uintptr_t to, device_id to_device, std::uintptr_t from,
               device_id from_device, std::size_t size_bytes) {
  if (to_device != from_device && !(can_access_peer(runtime, to_device, from_device) &&
                                    can_access_peer(runtime, from_device, to_device))) {
    return copy_through_host(runtime, to, to_device, from, from_device, size_bytes);
  }
  const auto wait = [&] {
    runtime.check(runtime.hipStreamSynchronize(nullptr), "hipStreamSynchronize", "a peer copy",
                  moved(to, from, size_bytes));
  };
  {
    // On HIP 7 the current device takes part in the copy, and a third one may have no right. On AMD it alone
    // copies memory of the host.
    const scoped_device current(runtime, from_device);
    const auto result = runtime.hipMemcpyPeer(pointer_at(to), to_device.value, pointer_at(from),
                                              from_device.value, size_bytes);
    runtime.check(result, "hipMemcpyPeer", "a copy from " + text(from_device) + " to " + text(to_device),
                  moved(to, from, size_bytes));
    wait();
  }
  if (to_device == from_device) return;
  // AMD's library 6.4 returns before the copy is done, which the target's null stream may run.
  const scoped_device current(runtime, to_device);
  wait();
}

}  // namespace hipplan
