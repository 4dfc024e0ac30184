// Memory of one device that others see at once: its owner, and the row that makes it.
#pragma once

#include <string_view>
#include <utility>

#include "core/buffer.hpp"
#include "core/scoped_device.hpp"

namespace hipplan {

/// hipExtMallocWithFlags / hipFree on one device.
class coherent_buffer : public buffer {
 public:
  using buffer::buffer;
  /// flags: hipDeviceMalloc*. Throws hip_error: hipErrorOutOfMemory, hipErrorInvalidValue,
  /// hipErrorNotSupported.
  void make(device_id device, unsigned int flags) {
    const scoped_device current(runtime(), device);
    void* pointer = nullptr;
    const auto result = runtime().hipExtMallocWithFlags(&pointer, size_bytes(), flags);
    runtime().check(result, "hipExtMallocWithFlags", [&] {
      return std::pair(described_buffer("coherent", name(), size_bytes()),
                       sized(size_bytes(), device) + ", flags=" + std::to_string(flags));
    });
    fill(pointer);
  }
  coherent_buffer(coherent_buffer&&) noexcept = default;
  ~coherent_buffer() { destroy(*this); }
  void release() {
    check_release(release_once([&] { return runtime().hipFree(pointer()); }), "hipFree",
                  [&] { return std::pair(identify(), "ptr=" + hexadecimal(address())); });
  }
  [[nodiscard]] std::string identify() const { return described_buffer("coherent", *this); }
};

/// What a change does to make it.
struct create_coherent_buffer {
  using owner = coherent_buffer;
  static constexpr std::string_view operation = "create coherent buffer";

  device_id device;
  std::size_t size_bytes;
  bool uncached;

  template <class Fields>
  [[nodiscard]] static create_coherent_buffer read(Fields& from) {
    return {from.device(), from.number(), from.boolean()};
  }
  void make(owner& empty) const {
    empty.make(device, uncached ? hip::hipDeviceMallocUncached : hip::hipDeviceMallocFinegrained);
  }
};

}  // namespace hipplan
