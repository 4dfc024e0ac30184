#include "allocation.hpp"

namespace hipplan {
hip::hipMemAllocationProp allocation_properties::native() const noexcept {
  hip::hipMemAllocationProp out{};
  out.type = type;
  out.requestedHandleType = handle_type;
  out.location = {location_type, location_id};
  out.allocFlags.gpuDirectRDMACapable = rdma ? 1 : 0;
  return out;
}

void allocation::take_make_result(const driver_call& call, hip::hipError_t result) {
  runtime().check(result, "hipMemCreate", [&] {
    return std::pair(identify(), "size=" + std::to_string(size_bytes_) +
                                     ", location=" + std::to_string(properties_.location.id));
  });
  handle_ = call.handle;
  fill();
}

bool allocation::is_like(const allocation& wanted) const noexcept {
  const auto &own = properties_, &other = wanted.properties_;
  return !empty() && !is_shared() && size_bytes_ == wanted.size_bytes_ && own.type == other.type &&
         own.location.type == other.location.type && own.location.id == other.location.id &&
         own.requestedHandleType == other.requestedHandleType &&
         own.allocFlags.gpuDirectRDMACapable == other.allocFlags.gpuDirectRDMACapable;
}

void allocation::take_release_result(hip::hipError_t result) {
  check_release(result, "hipMemRelease",
                [&] { return std::pair(identify(), "handle=" + hexadecimal(handle_)); });
}

int allocation::share() {
  if (!shared_) {
    auto kept = std::make_unique<kept_descriptor>();
    int first = -1;
    const auto result =
        runtime().hipMemExportToShareableHandle(&first, handle_, hip::hipMemHandleTypePosixFileDescriptor, 0);
    runtime().check(result, "hipMemExportToShareableHandle",
                    [&] { return std::pair(identify(), "handle=" + hexadecimal(handle_)); });
    kept->keep(first);
    shared_ = std::move(kept);
  }
  return duplicate(shared_->value());
}

void allocation::import(int given) {
  shared_ = std::make_unique<kept_descriptor>();
  shared_->keep(duplicate(given));
  int descriptor = shared_->value();
  const auto import_as = [&](void* os_handle) {
    return runtime().hipMemImportFromShareableHandle(&handle_, os_handle,
                                                     hip::hipMemHandleTypePosixFileDescriptor);
  };
  // Up to 7.0 HIP takes a pointer to the descriptor, from 7.2 on the descriptor cast to a pointer. Which of
  // them 7.1 takes is not certain: there the pointer is tried first, because a pointer read as a descriptor
  // is only an invalid number, while a descriptor read as a pointer would crash.
  const auto version = runtime().version();
  auto result = version < 70200000 ? import_as(&descriptor) : hip::hipErrorInvalidValue;
  if (version >= 70100000 && result == hip::hipErrorInvalidValue) {
    if (version < 70200000) runtime().forget_last_error();
    result = import_as(reinterpret_cast<void*>(static_cast<std::uintptr_t>(descriptor)));
  }
  runtime().check(result, "hipMemImportFromShareableHandle",
                  [&] { return std::pair(identify(), "descriptor=" + std::to_string(descriptor)); });
  fill();
}

std::string allocation::identify() const {
  return "allocation '" + name() + "' of " + std::to_string(size_bytes_) + " bytes";
}

}  // namespace hipplan
