// Physical memory without an address. hipMemCreate / hipMemRelease.
#pragma once

#include "owned.hpp"

namespace hipplan {

/// What hipMemCreate is asked for.
struct allocation_properties {
  hip::hipMemAllocationType type = hip::hipMemAllocationTypePinned;
  hip::hipMemLocationType location_type = hip::hipMemLocationTypeDevice;
  int location_id = 0;
  hip::hipMemAllocationHandleType handle_type = hip::hipMemHandleTypeNone;

  [[nodiscard]] hip::hipMemAllocationProp native() const noexcept;
};

class allocation : public owned {
 public:
  /// size_bytes: a non-zero multiple of the minimum granularity for these properties.
  /// The location's device must be current (see scoped_device).
  /// Throws hip_error: hipErrorOutOfMemory, hipErrorInvalidValue, hipErrorInvalidDevice,
  /// hipErrorNotSupported.
  [[nodiscard]] static allocation create(runtime_ptr runtime, std::string name, std::size_t size_bytes,
                                         const allocation_properties& properties);
  /// Takes in what another process exported. descriptor: an open file descriptor, still the caller's.
  /// Throws hip_error: hipErrorInvalidValue, hipErrorNotSupported.
  [[nodiscard]] static allocation import(runtime_ptr runtime, std::string name, std::size_t size_bytes,
                                         int descriptor);
  allocation(allocation&&) noexcept = default;
  ~allocation() { destroy(*this); }
  /// Throws hip_error; empty afterwards in both cases. Memory that is still mapped lives until unmapped.
  void release();

  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
  [[nodiscard]] hip::hipMemGenericAllocationHandle_t get() const noexcept { return handle_; }
  [[nodiscard]] std::string identify() const;

 private:
  allocation(runtime_ptr runtime, std::string name, std::size_t size_bytes,
             hip::hipMemGenericAllocationHandle_t handle)
      : owned(std::move(runtime), std::move(name)), size_bytes_(size_bytes), handle_(handle) {}

  std::size_t size_bytes_;
  hip::hipMemGenericAllocationHandle_t handle_;
};

}  // namespace hipplan
