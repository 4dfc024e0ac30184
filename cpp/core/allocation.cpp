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
  const auto import_as = [&](void* os_handle) {
    return runtime->hipMemImportFromShareableHandle(&handle, os_handle,
                                                    hip::hipMemHandleTypePosixFileDescriptor);
  };
  // Up to 7.0 HIP takes a pointer to the descriptor, from 7.2 on the descriptor cast to a pointer. Which of
  // them 7.1 takes is not certain: there a pointer comes first, because as a descriptor it is only a wrong
  // number, while a descriptor as a pointer would crash.
  const auto version = runtime->version();
  auto result = version < 70200000 ? import_as(&descriptor) : hip::hipErrorInvalidValue;
  if (version >= 70100000 && result == hip::hipErrorInvalidValue) {
    if (version < 70200000) runtime->forget_last_error();
    result = import_as(reinterpret_cast<void*>(static_cast<std::uintptr_t>(descriptor)));
  }
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
