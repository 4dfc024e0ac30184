// Existing host memory that is registered: its owner, and the row that makes it.
#pragma once

#include <string_view>
#include <utility>

#include "core/buffer.hpp"
#include "core/registered_range.hpp"
#include "core/scoped_device.hpp"
#include "core/words.hpp"

namespace hipplan {

/// hipHostRegister / hipHostUnregister: existing host memory, pinned while this lives.
class registered_buffer : public buffer {
 public:
  /// Empty. memory: what is registered; released when it is unregistered, never if that fails.
  registered_buffer(hip::runtime& runtime, plan_name name, std::shared_ptr<host_memory> memory)
      : buffer(runtime, std::move(name), memory->size_bytes()), memory_(std::move(memory)) {}
  /// Throws hip_error: hipErrorInvalidValue, hipErrorOutOfMemory; hipErrorHostMemoryAlreadyRegistered also
  /// where the runtime would register it twice.
  void make(device_id device, unsigned int flags);
  registered_buffer(registered_buffer&&) noexcept = default;
  ~registered_buffer() { destroy(*this); }
  void release();
  [[nodiscard]] std::string identify() const;

 private:
  std::shared_ptr<host_memory> memory_;
  registered_range range_;
};

inline void registered_buffer::make(device_id device, unsigned int flags) {
  const scoped_device current(runtime(), device);
  void* const pointer = reinterpret_cast<void*>(memory_->address());
  registered_range range(memory_->address(), size_bytes());
  const auto result = range ? runtime().hipHostRegister(pointer, size_bytes(), flags)
                            : hip::hipErrorHostMemoryAlreadyRegistered;
  runtime().check(result, "hipHostRegister", [&] {
    return std::pair(described_buffer("registered", name(), size_bytes()),
                     "ptr=" + hexadecimal(memory_->address()) + ", " + sized(size_bytes(), device) +
                         ", flags=" + hexadecimal(flags));
  });
  fill(pointer);
  range_ = std::move(range);
}

inline void registered_buffer::release() {
  const auto result = release_once([&] { return runtime().hipHostUnregister(pointer()); });
  if (result != hip::hipSuccess) memory_->stay();
  range_ = {};  // also of memory that stays registered: nothing of this process relies on that any more
  check_release(result, "hipHostUnregister",
                [&] { return std::pair(identify(), "ptr=" + hexadecimal(address())); });
}

inline std::string registered_buffer::identify() const { return described_buffer("registered", *this); }

/// What a change does to make it.
struct register_buffer {
  using owner = registered_buffer;
  static constexpr std::string_view operation = "register buffer";

  device_id device;
  std::size_t size_bytes;  ///< 0: the whole file
  unsigned flags;
  std::string file;  ///< empty: new memory, or what is bound to the row
  bool bound;
  bool read_only;
  int numa_node;
  huge_pages pages;

  template <class Fields>
  [[nodiscard]] static register_buffer read(Fields& from) {
    return {from.device(),
            from.number(),
            from.flags(registered_words),
            from.path(),
            from.boolean(),
            from.boolean(),
            from.integer(),
            from.template word<huge_pages>(huge_pages_words)};
  }
};

}  // namespace hipplan
