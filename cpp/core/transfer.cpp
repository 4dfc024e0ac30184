#include "transfer.hpp"

namespace hipplan {
namespace {

void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

std::string moved(std::uintptr_t to, std::uintptr_t from, std::size_t size_bytes) {
  return "dst=" + hexadecimal(to) + ", src=" + hexadecimal(from) + ", size=" + std::to_string(size_bytes);
}

}  // namespace

void fill(hip::runtime& runtime, std::uintptr_t address, int value, std::size_t size_bytes) {
  const auto arguments = "dst=" + hexadecimal(address) + ", size=" + std::to_string(size_bytes);
  runtime.check(runtime.hipMemset(pointer(address), value, size_bytes), "hipMemset", "a fill", arguments);
  // hipMemset of device memory may return before it is done.
  runtime.check(runtime.hipStreamSynchronize(nullptr), "hipStreamSynchronize", "a fill", arguments);
}

void copy(hip::runtime& runtime, std::uintptr_t to, std::uintptr_t from, std::size_t size_bytes) {
  runtime.check(runtime.hipMemcpy(pointer(to), pointer(from), size_bytes, hip::hipMemcpyDefault), "hipMemcpy",
                "a copy", moved(to, from, size_bytes));
  // Between two devices hipMemcpy may return before it is done.
  runtime.check(runtime.hipStreamSynchronize(nullptr), "hipStreamSynchronize", "a copy",
                moved(to, from, size_bytes));
}

void copy_peer(hip::runtime& runtime, std::uintptr_t to, device_id to_device, std::uintptr_t from,
               device_id from_device, std::size_t size_bytes) {
  const auto result =
      runtime.hipMemcpyPeer(pointer(to), to_device.value, pointer(from), from_device.value, size_bytes);
  runtime.check(result, "hipMemcpyPeer", "a copy from " + text(from_device) + " to " + text(to_device),
                moved(to, from, size_bytes));
  runtime.check(runtime.hipStreamSynchronize(nullptr), "hipStreamSynchronize", "a peer copy",
                moved(to, from, size_bytes));
}

}  // namespace hipplan
