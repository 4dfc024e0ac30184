// Page-locked host memory: its owner, and the row that makes it.
#pragma once

#include <string_view>
#include <utility>

#include "core/buffer.hpp"
#include "core/numa.hpp"
#include "core/scoped_device.hpp"
#include "core/words.hpp"

namespace hipplan {

/// hipHostMalloc / hipHostFree: page-locked host memory that devices reach.
class pinned_buffer : public buffer {
 public:
  using buffer::buffer;
  /// device: current during the call, which decides the context. flags: hipHostMalloc*. numa_node: the node
  /// to prefer; -1: the runtime chooses. Throws hip_error: hipErrorOutOfMemory, hipErrorInvalidValue.
  void make(device_id device, unsigned int flags, int numa_node);
  pinned_buffer(pinned_buffer&&) noexcept = default;
  ~pinned_buffer() { destroy(*this); }
  void release();
  [[nodiscard]] std::string identify() const;
};

inline void pinned_buffer::make(device_id device, unsigned int flags, int numa_node) {
  const scoped_device current(runtime(), device);
  const near_node place(numa_node);
  void* pointer = nullptr;
  const auto result = runtime().hipHostMalloc(&pointer, size_bytes(), flags);
  runtime().check(result, "hipHostMalloc", [&] {
    return std::pair(described_buffer("pinned", name(), size_bytes()),
                     sized(size_bytes(), device) + ", flags=" + hexadecimal(flags));
  });
  fill(pointer);
}

inline void pinned_buffer::release() {
  check_release(release_once([&] { return runtime().hipHostFree(pointer()); }), "hipHostFree",
                [&] { return std::pair(identify(), "ptr=" + hexadecimal(address())); });
}

inline std::string pinned_buffer::identify() const { return described_buffer("pinned", *this); }

/// What a change does to make it.
struct create_pinned_buffer {
  using owner = pinned_buffer;
  static constexpr std::string_view operation = "create pinned buffer";

  device_id device;
  std::size_t size_bytes;
  unsigned flags;
  int numa_node;  ///< -1: the runtime chooses

  template <class Fields>
  [[nodiscard]] static create_pinned_buffer read(Fields& from) {
    return {from.device(), from.number(), from.flags(pinned_words), from.integer()};
  }
  void make(owner& empty) const { empty.make(device, flags, numa_node); }
};

}  // namespace hipplan
