// Queries of devices and memory, for machine profiles and for reading layouts back.
// Nothing here changes state, except the calling thread's current device, which is restored.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "allocation.hpp"
#include "hip/runtime.hpp"
#include "units.hpp"

namespace hipplan {

/// hipDriverGetVersion, in the form of hip::runtime::version().
[[nodiscard]] int driver_version(hip::runtime& runtime);
/// Zero if the runtime reports hipErrorNoDevice.
[[nodiscard]] int device_count(hip::runtime& runtime);

/// The device that is current in the calling thread.
[[nodiscard]] int current_device(hip::runtime& runtime);
[[nodiscard]] std::string device_name(hip::runtime& runtime, device_id device);
/// gcnArchName, such as "gfx942:sramecc+:xnack-"; empty if the runtime does not report it.
[[nodiscard]] std::string device_arch(hip::runtime& runtime, device_id device);
/// Sixteen bytes; empty if the runtime does not report it.
[[nodiscard]] std::string device_uuid(hip::runtime& runtime, device_id device);
/// "0000:c1:00.0".
[[nodiscard]] std::string pci_bus_id(hip::runtime& runtime, device_id device);
/// hipMemGetInfo of a device: {free, total} bytes. Other processes use memory too.
[[nodiscard]] std::pair<std::size_t, std::size_t> memory_info(hip::runtime& runtime, device_id device);
/// Nothing if the runtime does not know the attribute.
[[nodiscard]] std::optional<int> device_attribute(hip::runtime& runtime, device_id device, int attribute);
[[nodiscard]] bool can_access_peer(hip::runtime& runtime, device_id device, device_id peer);
/// hipExtGetLinkTypeAndHopCount: {type, hops}; nothing if the runtime does not report it.
[[nodiscard]] std::optional<std::pair<unsigned, unsigned>> link(hip::runtime& runtime, device_id from,
                                                                device_id to);
void synchronize(hip::runtime& runtime, device_id device);

/// In bytes, for the properties of a hipMemCreate.
[[nodiscard]] std::size_t granularity(hip::runtime& runtime, const allocation_properties& properties,
                                      bool recommended);
/// 0 none, 1 read, 3 read and write.
[[nodiscard]] unsigned long long access(hip::runtime& runtime, device_id device, std::uintptr_t address);
[[nodiscard]] allocation_properties properties_of(hip::runtime& runtime, std::uintptr_t handle);

/// One integer of hipMemRangeGetAttribute over a managed range.
[[nodiscard]] int range_attribute(hip::runtime& runtime, std::uintptr_t address, std::size_t size_bytes,
                                  hip::hipMemRangeAttribute attribute);
/// The devices advised with SetAccessedBy over the whole range.
[[nodiscard]] std::vector<int> accessed_by(hip::runtime& runtime, std::uintptr_t address,
                                           std::size_t size_bytes);
[[nodiscard]] hip::hipPointerAttribute_t pointer_attributes(hip::runtime& runtime, std::uintptr_t address);
/// {base, size} of the allocation or mapping that contains an address.
[[nodiscard]] std::pair<std::uintptr_t, std::size_t> address_range_of(hip::runtime& runtime,
                                                                      std::uintptr_t address);
/// Returns a dma-buf descriptor of mapped memory, for a network card; the caller closes it. Throws hip_error:
/// hipErrorNotSupported (before HIP 7.0, or memory that was not made for it), hipErrorInvalidValue.
[[nodiscard]] int dma_buf_of(hip::runtime& runtime, std::uintptr_t address, std::size_t size_bytes);
[[nodiscard]] unsigned int host_flags(hip::runtime& runtime, std::uintptr_t address);
[[nodiscard]] std::uintptr_t device_pointer(hip::runtime& runtime, std::uintptr_t host_address);

}  // namespace hipplan
