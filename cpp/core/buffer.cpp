#include "buffer.hpp"

#include "numa.hpp"
#include "scoped_device.hpp"

namespace hipplan {
namespace {

std::string describe(const char* kind, const std::string& name, std::size_t size_bytes) {
  return std::string(kind) + " buffer '" + name + "' of " + std::to_string(size_bytes) + " bytes";
}

std::string describe(const char* kind, const buffer& owner) {
  return describe(kind, owner.name(), owner.size_bytes()) + " at " + hexadecimal(owner.address());
}

std::string sized(std::size_t size_bytes, device_id device) {
  return "size=" + std::to_string(size_bytes) + " on " + text(device);
}

std::string ranged(const void* pointer, std::size_t size_bytes, device_id device) {
  return "ptr=" + hexadecimal(pointer) + ", count=" + std::to_string(size_bytes) + ", " + text(device);
}

}  // namespace

void device_buffer::make() {
  const scoped_device current(runtime(), device_);
  void* pointer = nullptr;
  const auto result = runtime().hipMalloc(&pointer, size_bytes());
  runtime().check(result, "hipMalloc", [&] {
    return std::pair(describe("device", name(), size_bytes()), sized(size_bytes(), device_));
  });
  fill(pointer);
}

void device_buffer::release() {
  check_release(release_once([&] { return runtime().hipFree(pointer()); }), "hipFree",
                [&] { return std::pair(identify(), "ptr=" + hexadecimal(address())); });
}

std::string device_buffer::identify() const { return describe("device", *this); }

void pinned_buffer::make(device_id device, unsigned int flags, int numa_node) {
  const scoped_device current(runtime(), device);
  const near_node place(numa_node);
  void* pointer = nullptr;
  const auto result = runtime().hipHostMalloc(&pointer, size_bytes(), flags);
  runtime().check(result, "hipHostMalloc", [&] {
    return std::pair(describe("pinned", name(), size_bytes()),
                     sized(size_bytes(), device) + ", flags=" + hexadecimal(flags));
  });
  fill(pointer);
}

void pinned_buffer::release() {
  check_release(release_once([&] { return runtime().hipHostFree(pointer()); }), "hipHostFree",
                [&] { return std::pair(identify(), "ptr=" + hexadecimal(address())); });
}

std::string pinned_buffer::identify() const { return describe("pinned", *this); }

void registered_buffer::make(device_id device, unsigned int flags) {
  const scoped_device current(runtime(), device);
  void* const pointer = reinterpret_cast<void*>(memory_->address());
  const auto result = runtime().hipHostRegister(pointer, size_bytes(), flags);
  runtime().check(result, "hipHostRegister", [&] {
    return std::pair(describe("registered", name(), size_bytes()), "ptr=" + hexadecimal(memory_->address()) +
                                                                       ", " + sized(size_bytes(), device) +
                                                                       ", flags=" + hexadecimal(flags));
  });
  fill(pointer);
}

void registered_buffer::release() {
  const auto result = release_once([&] { return runtime().hipHostUnregister(pointer()); });
  if (result != hip::hipSuccess) memory_->stay();
  check_release(result, "hipHostUnregister",
                [&] { return std::pair(identify(), "ptr=" + hexadecimal(address())); });
}

std::string registered_buffer::identify() const { return describe("registered", *this); }

void managed_buffer::make(device_id device, unsigned int flags) {
  const scoped_device current(runtime(), device);
  void* pointer = nullptr;
  const auto result = runtime().hipMallocManaged(&pointer, size_bytes(), flags);
  runtime().check(result, "hipMallocManaged", [&] {
    return std::pair(describe("managed", name(), size_bytes()),
                     sized(size_bytes(), device) + ", flags=" + std::to_string(flags));
  });
  fill(pointer);
}

void managed_buffer::release() {
  check_release(release_once([&] { return runtime().hipFree(pointer()); }), "hipFree",
                [&] { return std::pair(identify(), "ptr=" + hexadecimal(address())); });
}

std::string managed_buffer::identify() const { return describe("managed", *this); }

void managed_buffer::advise(hip::runtime& runtime, std::size_t offset_bytes, std::size_t size_bytes,
                            hip::hipMemoryAdvise advice, device_id device) const {
  const auto result = runtime.hipMemAdvise(at(offset_bytes), size_bytes, advice, device.value);
  runtime.check(result, "hipMemAdvise", [&] {
    return std::pair(identify(),
                     ranged(at(offset_bytes), size_bytes, device) + ", advice=" + std::to_string(advice));
  });
}

void managed_buffer::prefetch(hip::runtime& runtime, std::size_t offset_bytes, std::size_t size_bytes,
                              device_id device, hip::hipStream_t stream) const {
  const auto result = runtime.hipMemPrefetchAsync(at(offset_bytes), size_bytes, device.value, stream);
  runtime.check(result, "hipMemPrefetchAsync",
                [&] { return std::pair(identify(), ranged(at(offset_bytes), size_bytes, device)); });
}

void managed_buffer::attach(hip::runtime& runtime, hip::hipStream_t stream, unsigned int flags) const {
  const auto result = runtime.hipStreamAttachMemAsync(stream, pointer(), 0, flags);
  runtime.check(result, "hipStreamAttachMemAsync", [&] {
    return std::pair(identify(), "stream=" + hexadecimal(stream) + ", flags=" + std::to_string(flags));
  });
}

}  // namespace hipplan
