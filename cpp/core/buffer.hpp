// Memory that is allocated with its address, in HIP's four kinds: device, pinned, registered, managed.
#pragma once

#include "host_memory.hpp"
#include "owned.hpp"

namespace hipplan {

/// The address and size that all four have.
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

/// hipHostRegister / hipHostUnregister: existing host memory, pinned while this lives.
class registered_buffer : public buffer {
 public:
  /// Empty. memory: what is registered; released when it is unregistered, never if that fails.
  registered_buffer(hip::runtime& runtime, plan_name name, std::shared_ptr<host_memory> memory)
      : buffer(runtime, std::move(name), memory->size_bytes()), memory_(std::move(memory)) {}
  /// Throws hip_error: hipErrorInvalidValue, hipErrorOutOfMemory.
  void make(device_id device, unsigned int flags);
  registered_buffer(registered_buffer&&) noexcept = default;
  ~registered_buffer() { destroy(*this); }
  void release();
  [[nodiscard]] std::string identify() const;

 private:
  std::shared_ptr<host_memory> memory_;
};

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
};

}  // namespace hipplan
