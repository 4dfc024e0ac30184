// Physical memory without an address. hipMemCreate / hipMemRelease.
#pragma once

#include "driver_call.hpp"
#include "kept_descriptor.hpp"
#include "owned.hpp"

namespace hipplan {

/// The properties of a hipMemCreate.
struct allocation_properties {
  hip::hipMemAllocationType type = hip::hipMemAllocationTypePinned;
  hip::hipMemLocationType location_type = hip::hipMemLocationTypeDevice;
  int location_id = 0;
  hip::hipMemAllocationHandleType handle_type = hip::hipMemHandleTypeNone;
  bool rdma = false;  ///< network cards may reach it

  [[nodiscard]] hip::hipMemAllocationProp native() const noexcept;
};

class allocation : public owned {
 public:
  /// Empty. size_bytes: a non-zero multiple of the minimum granularity for these properties.
  allocation(hip::runtime& runtime, plan_name name, std::size_t size_bytes,
             const allocation_properties& properties)
      : owned(runtime, std::move(name)), size_bytes_(size_bytes), properties_(properties.native()) {}
  /// hipMemCreate. The location's device must be current (see scoped_device).
  /// Throws hip_error: hipErrorOutOfMemory, hipErrorInvalidValue, hipErrorInvalidDevice,
  /// hipErrorNotSupported.
  void make() {
    auto call = make_call();
    take_make_result(call, call.make(runtime()));
  }
  [[nodiscard]] driver_call make_call() const noexcept {
    return {
        .which = driver_call::function::hipMemCreate, .size_bytes = size_bytes_, .properties = &properties_};
  }
  void take_make_result(const driver_call& call, hip::hipError_t result);
  /// Imports what another process exported, instead of make(). descriptor: an open file descriptor, which
  /// stays the caller's. Throws hip_error: hipErrorInvalidValue, hipErrorNotSupported.
  void import(int descriptor);
  /// Returns a new descriptor for another process; the caller closes it. Throws hip_error, std::system_error.
  [[nodiscard]] int share();
  /// Whether it has memory of this size and these properties that no other process has.
  [[nodiscard]] bool is_like(const allocation& wanted) const noexcept;
  /// Takes the memory of another one, which is empty afterwards, instead of make().
  void take(allocation&& from) noexcept {
    handle_ = from.handle_;
    from.abandon();
    fill();
  }
  allocation(allocation&&) noexcept = default;
  ~allocation() { destroy(*this); }
  /// Throws hip_error; empty afterwards in both cases. Memory that is still mapped lives until unmapped.
  void release() {
    take_release_result(release_once([&] { return release_call().make(runtime()); }));
  }
  [[nodiscard]] driver_call release_call() const noexcept {
    return {.which = driver_call::function::hipMemRelease, .handle = handle_};
  }
  void take_release_result(hip::hipError_t result);

  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
  [[nodiscard]] hip::hipMemGenericAllocationHandle_t get() const noexcept { return handle_; }
  /// Whether another process may have it: exported, or imported.
  [[nodiscard]] bool is_shared() const noexcept { return shared_ != nullptr; }
  [[nodiscard]] std::string identify() const;

 private:
  std::size_t size_bytes_;
  hip::hipMemGenericAllocationHandle_t handle_{};
  hip::hipMemAllocationProp properties_{};  ///< what make() asks for
  /// The first descriptor exported, or that of the import: open until the memory is freed. HIP 7.14.0 has no
  /// other one, and cannot export again or set access once it is closed (ROCm/rocm-systems 8440).
  std::unique_ptr<kept_descriptor> shared_;
};

}  // namespace hipplan
