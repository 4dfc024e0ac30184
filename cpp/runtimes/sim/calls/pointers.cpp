// Queries of addresses.
#include <cstring>

#include "access.hpp"
#include "calls/support.hpp"
#include "host_access.hpp"

namespace hipsim::calls {
namespace {

// The allocation or mapping that contains an address.
struct located {
  bool known = false;
  std::uintptr_t base = 0;
  std::uint64_t bytes = 0;
  hipMemoryType type = hipMemoryTypeUnregistered;
  int device = hipInvalidDeviceId;
  unsigned int flags = 0;
  std::uint32_t buffer_id = 0;
  bool mapped = false;       ///< by hipMemMap, or by a pool
  bool synchronous = false;  ///< set by hipPointerSetAttribute
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
            piece->second.buffer_id,
            true,
            piece->second.synchronous};
  }
  const auto found = containing(m.blocks, address);
  if (found == m.blocks.end()) return {};
  const auto& b = found->second;
  return {true,         found->first, b.bytes,     type_of(b.kind),
          b.device,     b.flags,      b.buffer_id, b.pooled && m.rules.keeps_only_errors,
          b.synchronous};
}

template <class Value>
hipError_t write(void* data, Value value, hipError_t code = hipSuccess) {
  std::memcpy(data, static_cast<const void*>(&value), sizeof(Value));
  return code;
}

// Writes as many bytes as AMD's library, for some attributes fewer than CUDA. For an unknown address it also
// writes zeros, and mostly returns an error.
hipError_t write_attribute(const machine& m, void* data, hipPointer_attribute attribute,
                           std::uintptr_t address, const located& at) {
  void* const pointer = at.known ? pointer_to(address) : nullptr;
  const bool managed = at.type == hipMemoryTypeManaged;
  const bool host = at.type == hipMemoryTypeHost || managed;
  const auto code = at.known ? hipSuccess : hipErrorInvalidValue;
  switch (attribute) {
    case HIP_POINTER_ATTRIBUTE_CONTEXT: {
      const bool has_context = at.type == hipMemoryTypeDevice && (!at.mapped || m.rules.keeps_only_errors);
      return has_context ? write(data, context_of(at.device)) : hipErrorInvalidValue;
    }
    case HIP_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return write(data, managed ? hipMemoryTypeHost : at.type, code);
    case HIP_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return write(data, pointer, code);
    case HIP_POINTER_ATTRIBUTE_HOST_POINTER:
      return write(data, host ? pointer : nullptr, host ? hipSuccess : hipErrorInvalidValue);
    case HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return write(data, at.synchronous, code);
    case HIP_POINTER_ATTRIBUTE_BUFFER_ID:
      return write(data, at.buffer_id, code);
    case HIP_POINTER_ATTRIBUTE_IS_MANAGED:
      return write(data, managed, code);
    case HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return write(data, at.device, code);
    case HIP_POINTER_ATTRIBUTE_IS_LEGACY_HIP_IPC_CAPABLE:
      if (!m.rules.keeps_only_errors) return hipErrorNotSupported;
      return write(data, int{at.type == hipMemoryTypeDevice && !at.mapped}, code);
    case HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return write(data, pointer_to(at.base), code);
    case HIP_POINTER_ATTRIBUTE_RANGE_SIZE:
      return write(data, static_cast<std::uint32_t>(at.bytes), code);
    case HIP_POINTER_ATTRIBUTE_MAPPED:
      return write(data, at.known, code);
    case HIP_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return write(data, managed ? 0U : at.flags);  // no error for an unknown address
    case HIP_POINTER_ATTRIBUTE_P2P_TOKENS:
    case HIP_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case HIP_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case HIP_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return hipErrorNotSupported;
  }
  return hipErrorInvalidValue;
}

}  // namespace

hipError_t hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* ptr) {
  const reading m;
  if (!attributes)
    return m->rules.location_calls || !m->rules.null_pointer_attributes ? hipErrorInvalidValue : hipSuccess;
  if (!ptr && !m->rules.null_pointer_attributes) return hipErrorInvalidValue;
  const auto at = locate(*m, address_of(ptr));
  *attributes = {};
  attributes->type = at.type;
  attributes->device = at.device;
  if (!at.known) return hipSuccess;
  void* const pointer = pointer_to(address_of(ptr));
  attributes->devicePointer = pointer;
  if (at.type != hipMemoryTypeDevice) attributes->hostPointer = pointer;
  attributes->isManaged = at.type == hipMemoryTypeManaged;
  attributes->allocationFlags = at.type == hipMemoryTypeManaged ? 0 : at.flags;
  return hipSuccess;
}

hipError_t hipPointerGetAttribute(void* data, hipPointer_attribute attribute, hipDeviceptr_t ptr) {
  if (!data || !ptr) return hipErrorInvalidValue;
  const reading m;
  const auto at = locate(*m, address_of(ptr));
  return write_attribute(*m, data, attribute, address_of(ptr), at);
}

hipError_t hipDrvPointerGetAttributes(unsigned int count, hipPointer_attribute* attributes, void** data,
                                      hipDeviceptr_t ptr) {
  if (!attributes || !data || count == 0 || !ptr) return hipErrorInvalidValue;
  const reading m;
  const auto at = locate(*m, address_of(ptr));
  for (unsigned int i = 0; i < count; ++i) {
    if (!data[i]) return undefined("hipDrvPointerGetAttributes", "a null answer");
    // As in CUDA, an attribute that is unknown does not fail the others.
    (void)write_attribute(*m, data[i], attributes[i], address_of(ptr), at);
  }
  return hipSuccess;
}

// All work is synchronous here, so the value is only stored.
hipError_t hipPointerSetAttribute(const void* value, hipPointer_attribute attribute, hipDeviceptr_t ptr) {
  if (!value || !ptr || attribute != HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS) return hipErrorInvalidValue;
  std::uint32_t wanted = 0;
  read_host(address_of(value), &wanted, sizeof wanted);
  writing m;
  if (!is_known(*m, address_of(ptr))) return hipErrorInvalidDevicePointer;
  const auto found = containing(m->blocks, address_of(ptr));
  if (found != m->blocks.end()) found->second.synchronous = wanted != 0;
  const auto piece = containing(m->mappings, address_of(ptr));
  if (piece != m->mappings.end()) piece->second.synchronous = wanted != 0;
  return hipSuccess;
}

hipError_t hipMemGetAddressRange(void** base, std::size_t* size, void* ptr) {
  const reading m;
  const auto at = locate(*m, address_of(ptr));
  if (!at.known) return hipErrorNotFound;
  if (!base || !size) note("hipMemGetAddressRange", "a null output crashes the real library up to 7.12");
  // AMD's library returns an allocation's device address, which registered memory does not have.
  const auto found = m->blocks.find(at.base);
  const bool registered =
      !at.mapped && found != m->blocks.end() && found->second.kind == block_kind::registered;
  if (base) *base = registered ? nullptr : pointer_to(at.base);
  if (size) *size = at.bytes;
  return hipSuccess;
}

hipError_t hipMemPtrGetInfo(void* ptr, std::size_t* size) {
  if (!size) return hipErrorInvalidValue;
  const reading m;
  const auto at = locate(*m, address_of(ptr));
  if (!at.known && (ptr || !m->rules.location_calls)) return hipErrorInvalidValue;
  *size = at.bytes;  // from 7.1 on 0 for null
  return hipSuccess;
}

}  // namespace hipsim::calls
