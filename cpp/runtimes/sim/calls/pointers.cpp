// What HIP can tell about an address.
#include <cstring>

#include "access.hpp"
#include "calls/support.hpp"

namespace hipsim::calls {
namespace {

// The allocation or mapped piece that holds an address.
struct located {
  bool known = false;
  std::uintptr_t base = 0;
  std::uint64_t bytes = 0;
  hipMemoryType type = hipMemoryTypeUnregistered;
  int device = hipInvalidDeviceId;
  unsigned int flags = 0;
  std::uint64_t id = 0;
};

hipMemoryType type_of(block_kind kind) {
  switch (kind) {
    case block_kind::device:
      return hipMemoryTypeDevice;
    case block_kind::managed:
      return hipMemoryTypeManaged;
    default:
      return hipMemoryTypeHost;
  }
}

located locate(const machine& m, std::uintptr_t address) {
  if (const auto piece = containing(m.mappings, address); piece != m.mappings.end()) {
    const auto& properties = m.allocations.at(piece->second.allocation).properties;
    return {true,
            piece->first,
            piece->second.bytes,
            hipMemoryTypeDevice,
            properties.location_id,
            0,
            piece->second.allocation};
  }
  const auto found = containing(m.blocks, address);
  if (found == m.blocks.end()) return {};
  const auto& b = found->second;
  return {true, found->first, b.bytes, type_of(b.kind), b.device, b.flags, found->first};
}

template <class Value>
void write(void* data, Value value) {
  std::memcpy(data, static_cast<const void*>(&value), sizeof value);
}

hipError_t write_attribute(void* data, hipPointer_attribute attribute, std::uintptr_t address,
                           const located& at) {
  void* const pointer = pointer_to(address);
  const bool host = at.type == hipMemoryTypeHost || at.type == hipMemoryTypeManaged;
  switch (attribute) {
    case HIP_POINTER_ATTRIBUTE_MEMORY_TYPE:
      write(data, at.type);
      break;
    case HIP_POINTER_ATTRIBUTE_DEVICE_POINTER:
      write(data, pointer);
      break;
    case HIP_POINTER_ATTRIBUTE_HOST_POINTER:
      write(data, host ? pointer : nullptr);
      return host ? hipSuccess : hipErrorInvalidValue;
    case HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      write(data, 0u);
      break;
    case HIP_POINTER_ATTRIBUTE_BUFFER_ID:
      write(data, at.id);
      break;
    case HIP_POINTER_ATTRIBUTE_IS_MANAGED:
      write(data, at.type == hipMemoryTypeManaged);
      break;
    case HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      write(data, at.device);
      break;
    case HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      write(data, pointer_to(at.base));
      break;
    case HIP_POINTER_ATTRIBUTE_RANGE_SIZE:
      write(data, static_cast<std::size_t>(at.bytes));
      break;
    case HIP_POINTER_ATTRIBUTE_MAPPED:
      write(data, true);
      break;
    default:
      return hipErrorInvalidValue;  // not supported in HIP, or not an attribute
  }
  return hipSuccess;
}

// What an address unknown to HIP answers: zeros, and no device. The size of each answer differs.
void write_nothing(void* data, hipPointer_attribute attribute) {
  switch (attribute) {
    case HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      write(data, hipInvalidDeviceId);
      break;
    case HIP_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      write(data, 0u);
      break;
    case HIP_POINTER_ATTRIBUTE_IS_MANAGED:
    case HIP_POINTER_ATTRIBUTE_MAPPED:
      write(data, false);
      break;
    default:
      write(data, std::uint64_t{0});
      break;
  }
}

}  // namespace

hipError_t hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* ptr) {
  const reading m;
  if (!attributes || !ptr) {
    if (!m->rules.null_pointer_attributes) return hipErrorInvalidValue;
    if (!attributes) return hipSuccess;
  }
  const auto at = locate(*m, address_of(ptr));
  *attributes = {};
  attributes->type = at.type;
  attributes->device = at.device;
  if (!at.known) return hipSuccess;
  void* const pointer = pointer_to(address_of(ptr));
  attributes->devicePointer = pointer;
  if (at.type != hipMemoryTypeDevice) attributes->hostPointer = pointer;
  attributes->isManaged = at.type == hipMemoryTypeManaged;
  attributes->allocationFlags = at.flags;
  return hipSuccess;
}

hipError_t hipPointerGetAttribute(void* data, hipPointer_attribute attribute, hipDeviceptr_t ptr) {
  if (!data || !ptr) return hipErrorInvalidValue;
  const reading m;
  const auto at = locate(*m, address_of(ptr));
  return at.known ? write_attribute(data, attribute, address_of(ptr), at) : hipErrorInvalidValue;
}

hipError_t hipDrvPointerGetAttributes(unsigned int count, hipPointer_attribute* attributes, void** data,
                                      hipDeviceptr_t ptr) {
  if (!attributes || !data || count == 0) return hipErrorInvalidValue;
  const reading m;
  const auto at = locate(*m, address_of(ptr));
  for (unsigned int i = 0; i < count; ++i) {
    if (!data[i]) return hipErrorInvalidValue;
    // As in CUDA, what cannot be told about one attribute does not fail the others.
    if (!at.known || write_attribute(data[i], attributes[i], address_of(ptr), at) != hipSuccess) {
      write_nothing(data[i], attributes[i]);
    }
  }
  return hipSuccess;
}

hipError_t hipPointerSetAttribute(const void* value, hipPointer_attribute attribute, hipDeviceptr_t ptr) {
  if (!value || !ptr || attribute != HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS) return hipErrorInvalidValue;
  return is_known(*reading(), address_of(ptr)) ? hipSuccess
                                               : hipErrorInvalidValue;  // all work is synchronous here
}

hipError_t hipMemGetAddressRange(void** base, std::size_t* size, void* ptr) {
  const reading m;
  const auto at = locate(*m, address_of(ptr));
  if (!at.known) return hipErrorNotFound;
  if (!base || !size) note("hipMemGetAddressRange", "a null output crashes the real library up to 7.12");
  if (base) *base = pointer_to(at.base);
  if (size) *size = at.bytes;
  return hipSuccess;
}

hipError_t hipMemPtrGetInfo(void* ptr, std::size_t* size) {
  if (!ptr || !size) return hipErrorInvalidValue;
  const reading m;
  const auto at = locate(*m, address_of(ptr));
  if (!at.known) return hipErrorInvalidValue;
  *size = at.bytes;
  return hipSuccess;
}

}  // namespace hipsim::calls
