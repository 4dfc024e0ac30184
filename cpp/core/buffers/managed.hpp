// Managed memory: its owner, and the row that makes it.
#pragma once

#include <string_view>
#include <utility>

#include "core/buffer.hpp"
#include "core/scoped_device.hpp"
#include "core/words.hpp"

namespace hipplan {

/// hipMallocManaged / hipFree: one address on host and devices.
class managed_buffer : public buffer {
 public:
  using buffer::buffer;
  /// flags: hipMemAttachGlobal or hipMemAttachHost. device: the owner HIP records (current in the call).
  /// Throws hip_error: hipErrorOutOfMemory, hipErrorInvalidValue.
  void make(device_id device, unsigned int flags);
  managed_buffer(managed_buffer&&) noexcept = default;
  ~managed_buffer() { destroy(*this); }
  void release();
  [[nodiscard]] std::string identify() const;

  /// hipMemAdvise on a part. Throws hip_error: hipErrorInvalidValue, hipErrorInvalidDevice.
  void advise(hip::runtime& runtime, std::size_t offset_bytes, std::size_t size_bytes,
              hip::hipMemoryAdvise advice, device_id device) const;
  /// hipMemPrefetchAsync on a part; enqueued on the stream (null: the current device's), without a wait.
  /// Throws hip_error: hipErrorInvalidValue, hipErrorInvalidDevice.
  void prefetch(hip::runtime& runtime, std::size_t offset_bytes, std::size_t size_bytes, device_id device,
                hip::hipStream_t stream) const;
  /// hipStreamAttachMemAsync on the whole buffer; flags: hipMemAttach*. Throws hip_error.
  void attach(hip::runtime& runtime, hip::hipStream_t stream, unsigned int flags) const;

 private:
  [[nodiscard]] void* at(std::size_t offset_bytes) const noexcept {
    return reinterpret_cast<void*>(address() + offset_bytes);
  }
  /// Words for the arguments of a call about a part.
  [[nodiscard]] std::string ranged(std::size_t offset_bytes, std::size_t size_bytes, device_id device) const {
    return "ptr=" + hexadecimal(at(offset_bytes)) + ", count=" + std::to_string(size_bytes) + ", " +
           text(device);
  }
};

inline void managed_buffer::make(device_id device, unsigned int flags) {
  const scoped_device current(runtime(), device);
  void* pointer = nullptr;
  const auto result = runtime().hipMallocManaged(&pointer, size_bytes(), flags);
  runtime().check(result, "hipMallocManaged", [&] {
    return std::pair(described_buffer("managed", name(), size_bytes()),
                     sized(size_bytes(), device) + ", flags=" + std::to_string(flags));
  });
  fill(pointer);
}

inline void managed_buffer::release() {
  check_release(release_once([&] { return runtime().hipFree(pointer()); }), "hipFree",
                [&] { return std::pair(identify(), "ptr=" + hexadecimal(address())); });
}

inline std::string managed_buffer::identify() const { return described_buffer("managed", *this); }

inline void managed_buffer::advise(hip::runtime& runtime, std::size_t offset_bytes, std::size_t size_bytes,
                                   hip::hipMemoryAdvise advice, device_id device) const {
  const auto result = runtime.hipMemAdvise(at(offset_bytes), size_bytes, advice, device.value);
  runtime.check(result, "hipMemAdvise", [&] {
    return std::pair(identify(),
                     ranged(offset_bytes, size_bytes, device) + ", advice=" + std::to_string(advice));
  });
}

inline void managed_buffer::prefetch(hip::runtime& runtime, std::size_t offset_bytes, std::size_t size_bytes,
                                     device_id device, hip::hipStream_t stream) const {
  const auto result = runtime.hipMemPrefetchAsync(at(offset_bytes), size_bytes, device.value, stream);
  runtime.check(result, "hipMemPrefetchAsync",
                [&] { return std::pair(identify(), ranged(offset_bytes, size_bytes, device)); });
}

inline void managed_buffer::attach(hip::runtime& runtime, hip::hipStream_t stream, unsigned int flags) const {
  const auto result = runtime.hipStreamAttachMemAsync(stream, pointer(), 0, flags);
  runtime.check(result, "hipStreamAttachMemAsync", [&] {
    return std::pair(identify(), "stream=" + hexadecimal(stream) + ", flags=" + std::to_string(flags));
  });
}

/// What a change does to make it.
struct create_managed_buffer {
  using owner = managed_buffer;
  static constexpr std::string_view operation = "create managed buffer";

  device_id device;
  std::size_t size_bytes;
  unsigned flags;

  template <class Fields>
  [[nodiscard]] static create_managed_buffer read(Fields& from) {
    return {from.device(), from.number(), from.word(attach_words)};
  }
  void make(owner& empty) const { empty.make(device, flags); }
};

}  // namespace hipplan
