#include "allocation.hpp"

namespace hipplan {
namespace {

std::string describe(const std::string& name, std::size_t size_bytes) {
  return "allocation '" + name + "' of " + std::to_string(size_bytes) + " bytes";
}

}  // namespace

hip::hipMemAllocationProp allocation_properties::native() const noexcept {
  hip::hipMemAllocationProp out{};
  out.type = type;
  out.requestedHandleType = handle_type;
  out.location = {location_type, location_id};
  return out;
}

allocation allocation::create(runtime_ptr runtime, std::string name, std::size_t size_bytes,
                              const allocation_properties& properties) {
  const auto native = properties.native();
  hip::hipMemGenericAllocationHandle_t handle{};
  const auto result = runtime->hipMemCreate(&handle, size_bytes, &native, 0);
  runtime->check(result, "hipMemCreate", [&] {
    return std::pair(describe(name, size_bytes), "size=" + std::to_string(size_bytes) +
                                                     ", location=" + std::to_string(properties.location_id));
  });
  return {std::move(runtime), std::move(name), size_bytes, handle};
}

allocation allocation::import(runtime_ptr runtime, std::string name, std::size_t size_bytes, int descriptor) {
  hip::hipMemGenericAllocationHandle_t handle{};
  // Up to 7.0 HIP takes a pointer to the descriptor, later the descriptor cast to a pointer (facts, section
  // 2).
  void* const os_handle = runtime->version() < 70100000
                              ? static_cast<void*>(&descriptor)
                              : reinterpret_cast<void*>(static_cast<std::uintptr_t>(descriptor));
  const auto result =
      runtime->hipMemImportFromShareableHandle(&handle, os_handle, hip::hipMemHandleTypePosixFileDescriptor);
  runtime->check(result, "hipMemImportFromShareableHandle", describe(name, size_bytes),
                 "descriptor=" + std::to_string(descriptor));
  return {std::move(runtime), std::move(name), size_bytes, handle};
}

void allocation::release() {
  const auto runtime = take();
  runtime->check(runtime->hipMemRelease(handle_), "hipMemRelease",
                 [&] { return std::pair(identify(), "handle=" + hexadecimal(handle_)); });
}

std::string allocation::identify() const { return describe(name(), size_bytes_); }

}  // namespace hipplan
