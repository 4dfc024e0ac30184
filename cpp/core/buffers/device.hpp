// Memory of one device: its owner, and the row that makes it.
#pragma once

#include <string_view>
#include <utility>

#include "core/buffer.hpp"
#include "core/scoped_device.hpp"

namespace hipplan {

/// hipMalloc / hipFree on one device. hipFree waits for the device's streams.
class device_buffer : public buffer {
 public:
  /// Empty.
  device_buffer(hip::runtime& runtime, plan_name name, device_id device, std::size_t size_bytes)
      : buffer(runtime, std::move(name), size_bytes), device_(device) {}
  /// Throws hip_error: hipErrorOutOfMemory, hipErrorInvalidDevice.
  void make();
  device_buffer(device_buffer&&) noexcept = default;
  ~device_buffer() { destroy(*this); }
  void release();
  [[nodiscard]] std::string identify() const;

 private:
  device_id device_;
};

inline void device_buffer::make() {
  const scoped_device current(runtime(), device_);
  void* pointer = nullptr;
  const auto result = runtime().hipMalloc(&pointer, size_bytes());
  runtime().check(result, "hipMalloc", [&] {
    return std::pair(described_buffer("device", name(), size_bytes()), sized(size_bytes(), device_));
  });
  fill(pointer);
}

inline void device_buffer::release() {
  check_release(release_once([&] { return runtime().hipFree(pointer()); }), "hipFree",
                [&] { return std::pair(identify(), "ptr=" + hexadecimal(address())); });
}

inline std::string device_buffer::identify() const { return described_buffer("device", *this); }

/// What a change does to make it.
struct create_device_buffer {
  using owner = device_buffer;
  static constexpr std::string_view operation = "create device buffer";

  device_id device;
  std::size_t size_bytes;

  template <class Fields>
  [[nodiscard]] static create_device_buffer read(Fields& from) {
    return {from.device(), from.number()};
  }
};

}  // namespace hipplan
