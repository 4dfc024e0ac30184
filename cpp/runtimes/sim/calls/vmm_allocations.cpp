// hipMemCreate to hipMemRelease: physical memory and its handles, granularity, properties.
#include <algorithm>

#include "calls/support.hpp"

namespace hipsim::calls {
namespace {

constexpr std::size_t buffer_alignment_bytes = 2048;  // HIP's own check; ROCr checks for whole pages

bool is_host(hipMemLocationType type) {
  return type == hipMemLocationTypeHost || type == hipMemLocationTypeHostNuma ||
         type == hipMemLocationTypeHostNumaCurrent;
}

bool allowed_type(const machine& m, hipMemAllocationType type) {
  return type == hipMemAllocationTypePinned ||
         (type == hipMemAllocationTypeUncached && m.rules.uncached_type);
}

bool allowed_location(const machine& m, hipMemLocationType type) {
  if (type == hipMemLocationTypeDevice) return true;
  if (type == hipMemLocationTypeHost) return m.rules.host_location;
  return is_host(type) && m.rules.numa_locations;
}

hipError_t check_handle_type(const machine& m, hipMemAllocationHandleType type) {
  if (type == hipMemHandleTypeNone) return hipSuccess;
  if (type == hipMemHandleTypePosixFileDescriptor && m.rules.exports_descriptors) return hipSuccess;
  return type == hipMemHandleTypeFabric && m.rules.fabric_handles ? hipSuccess : hipErrorNotSupported;
}

hipError_t check_properties(const machine& m, const hipMemAllocationProp& prop) {
  if (!allowed_type(m, prop.type) || !allowed_location(m, prop.location.type)) return hipErrorInvalidValue;
  const bool names_device =
      prop.location.type == hipMemLocationTypeDevice || prop.location.type == hipMemLocationTypeHost;
  if (names_device &&
      !m.is_device(prop.location.id)) {  // the id of a host location is checked like a device's
    return static_cast<hipError_t>(m.rules.create_bad_device_code);
  }
  const bool is_node = prop.location.id >= 0 && prop.location.id < m.profile.numa_nodes;
  if (prop.location.type == hipMemLocationTypeHostNuma && !is_node) return hipErrorInvalidValue;
  return check_handle_type(m, prop.requestedHandleType);
}

hipError_t check_size(const machine& m, std::size_t size) {
  if (size > m.profile.host_memory_bytes)
    return hipErrorOutOfMemory;  // HIP compares the size with the host's memory
  if (size % buffer_alignment_bytes != 0) return hipErrorInvalidValue;
  return page_aligned(size) ? hipSuccess : hipErrorOutOfMemory;
}

allocation_properties remembered(const hipMemAllocationProp& prop) {
  return {prop.type,
          prop.requestedHandleType,
          prop.location.type,
          prop.location.id,
          prop.win32HandleMetaData,
          prop.allocFlags.compressionType,
          prop.allocFlags.gpuDirectRDMACapable,
          prop.allocFlags.usage};
}

}  // namespace

hipError_t hipMemCreate(hipMemGenericAllocationHandle_t* handle, std::size_t size,
                        const hipMemAllocationProp* prop, unsigned long long flags) {
  if (!handle || size == 0 || flags != 0 || !prop) return hipErrorInvalidValue;
  writing m;
  if (const auto code = check_properties(*m, *prop); code != hipSuccess) return code;
  if (const auto code = check_size(*m, size); code != hipSuccess) return code;
  int device = is_host(prop->location.type) ? host_device : prop->location.id;
  if (device != host_device && !m->shape(device).vmm) return hipErrorOutOfMemory;
  if (device != host_device && m->quirk("create_on_current_device")) device = current_device();
  const bool shareable =
      prop->requestedHandleType != hipMemHandleTypeNone || prop->allocFlags.gpuDirectRDMACapable != 0;
  auto counted = m->charged(device, size);
  auto memory = m->take_memory(device, size, shareable);
  *handle = reinterpret_cast<hipMemGenericAllocationHandle_t>(
      m->add_allocation(std::move(memory), remembered(*prop)));
  counted.keep();
  return hipSuccess;
}

hipError_t hipMemRelease(hipMemGenericAllocationHandle_t handle) {
  if (!handle) return hipErrorInvalidValue;
  writing m;
  const auto found = m->allocations.find(id_of(handle));
  if (found == m->allocations.end()) {
    return undefined("hipMemRelease", "handle " + hex(id_of(handle)) + " is not, or no longer, one");
  }
  if (found->second.references == 0) {
    return undefined("hipMemRelease",
                     "handle " + hex(id_of(handle)) + " was released already; only mappings hold it");
  }
  m->drop_reference(id_of(handle));
  return hipSuccess;
}

hipError_t hipMemRetainAllocationHandle(hipMemGenericAllocationHandle_t* handle, void* addr) {
  if (!handle || !addr) return hipErrorInvalidValue;
  writing m;
  const auto piece = containing(m->mappings, address_of(addr));
  if (piece == m->mappings.end()) return hipErrorInvalidValue;
  if (m->rules.retain_counts) ++m->allocations.at(piece->second.allocation).references;
  *handle = reinterpret_cast<hipMemGenericAllocationHandle_t>(piece->second.allocation);
  return hipSuccess;
}

hipError_t hipMemGetAllocationGranularity(std::size_t* granularity, const hipMemAllocationProp* prop,
                                          hipMemAllocationGranularity_flags option) {
  if (!granularity || !prop || option > hipMemAllocationGranularityRecommended) return hipErrorInvalidValue;
  const reading m;
  if (!allowed_type(*m, prop->type) || !allowed_location(*m, prop->location.type))
    return hipErrorInvalidValue;
  const bool numa = is_host(prop->location.type) && prop->location.type != hipMemLocationTypeHost;
  if (!numa && !m->is_device(prop->location.id)) return hipErrorInvalidValue;
  if (is_host(prop->location.type)) {
    const bool minimum = option == hipMemAllocationGranularityMinimum;
    *granularity = minimum ? page_bytes : m->rules.host_granularity_recommended;
    return hipSuccess;
  }
  const auto& shape = m->shape(prop->location.id);
  const bool minimum = option == hipMemAllocationGranularityMinimum;
  *granularity = minimum ? shape.granularity_minimum : shape.granularity_recommended;
  return hipSuccess;
}

hipError_t hipMemGetAllocationPropertiesFromHandle(hipMemAllocationProp* prop,
                                                   hipMemGenericAllocationHandle_t handle) {
  if (!prop || !handle) return hipErrorInvalidValue;
  const reading m;
  const auto found = m->allocations.find(id_of(handle));
  if (found == m->allocations.end()) {
    return undefined("hipMemGetAllocationPropertiesFromHandle", hex(id_of(handle)) + " is no handle");
  }
  const auto& p = found->second.properties;
  *prop = {};
  prop->type = static_cast<hipMemAllocationType>(p.type);
  prop->requestedHandleType = static_cast<hipMemAllocationHandleType>(p.handle_type);
  prop->location = {static_cast<hipMemLocationType>(p.location_type), p.location_id};
  prop->win32HandleMetaData = p.win32_metadata;
  prop->allocFlags = {p.compression, p.rdma, p.usage};
  return hipSuccess;
}

}  // namespace hipsim::calls
