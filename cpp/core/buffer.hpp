// Memory that is allocated with its address. Each kind has a header in buffers/, and buffer_kinds.hpp lists
// them.
#pragma once

#include "host_memory.hpp"
#include "owned.hpp"

namespace hipplan {

/// The address and size that all kinds have.
class buffer : public owned {
 public:
  /// Empty.
  buffer(hip::runtime& runtime, plan_name name, std::size_t size_bytes)
      : owned(runtime, std::move(name)), size_bytes_(size_bytes) {}
  buffer(buffer&&) noexcept = default;
  [[nodiscard]] std::uintptr_t address() const noexcept { return address_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
  [[nodiscard]] void* pointer() const noexcept { return reinterpret_cast<void*>(address_); }

 protected:
  ~buffer() = default;

  void fill(void* pointer) noexcept {
    address_ = reinterpret_cast<std::uintptr_t>(pointer);
    owned::fill();
  }

 private:
  std::uintptr_t address_ = 0;
  std::size_t size_bytes_;
};

/// Words for errors: which buffer, before and after it is made.
[[nodiscard]] std::string described_buffer(const char* kind, const std::string& name, std::size_t size_bytes);
[[nodiscard]] std::string described_buffer(const char* kind, const buffer& owner);
[[nodiscard]] std::string sized(std::size_t size_bytes, device_id device);

}  // namespace hipplan
