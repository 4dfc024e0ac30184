// Sharing memory between processes: export returns a descriptor of the memory file, import opens it.
#include <cerrno>
#include <system_error>

#include "calls/support.hpp"
#include "host_access.hpp"

namespace hipsim::calls {
namespace {

// The meaning of osHandle changed between releases; both are accepted, unless a quirk allows only one.
// Descriptors are small numbers, pointers are not.
constexpr std::uintptr_t descriptors_end = 1'000'000;

}  // namespace

hipError_t hipMemExportToShareableHandle(void* shareableHandle, hipMemGenericAllocationHandle_t handle,
                                         hipMemAllocationHandleType handleType, unsigned long long flags) {
  if (flags != 0 || !handle || !shareableHandle) return hipErrorInvalidValue;
  writing m;
  if (!m->rules.exports_descriptors) return hipErrorNotSupported;
  const auto found = m->allocations.find(id_of(handle));
  if (found == m->allocations.end()) {
    return undefined("hipMemExportToShareableHandle", hex(id_of(handle)) + " is no handle");
  }
  if (handleType != hipMemHandleTypePosixFileDescriptor ||
      found->second.properties.handle_type != handleType) {
    return hipErrorInvalidValue;
  }
  const auto& file = *found->second.memory->memory.file();
  int& first = found->second.descriptor;
  const bool again = first >= 0 && m->quirk("export_repeats_first");
  if (again && !file.is_behind(first)) {
    note("hipMemExportToShareableHandle", "the first descriptor was closed: EBADF");
    return hipErrorInvalidValue;
  }
  const int descriptor = file.share();
  if (descriptor < 0) {
    note("hipMemExportToShareableHandle", "no descriptor: " + std::generic_category().message(errno));
    return hipErrorInvalidValue;
  }
  if (first < 0 && !found->second.imported) first = descriptor;
  *static_cast<int*>(shareableHandle) = descriptor;
  return hipSuccess;
}

// Works for all device memory; the descriptor is of the whole allocation. AMD's 7.2 checks the size for
// memory of hipMalloc alone.
hipError_t hipMemGetHandleForAddressRange(void* handle, void* dptr, std::size_t size,
                                          hipMemRangeHandleType handleType, unsigned long long flags) {
  if (!handle || !dptr || size == 0 || flags != 0 || handleType != hipMemRangeHandleTypeDmaBufFd) {
    return hipErrorInvalidValue;
  }
  const auto address = address_of(dptr);
  writing m;
  if (!m->rules.range_handles) return hipErrorNotSupported;
  const memory_file* file = nullptr;
  if (const auto piece = m->mappings.find(address); piece != m->mappings.end()) {
    if (size > piece->second.bytes) return hipErrorInvalidValue;
    if (m->memory_of(piece->second).device == host_device) {
      note("hipMemGetHandleForAddressRange", "the simulator exports no memory of the host");
      return hipErrorNotSupported;
    }
    file = &m->own_file(piece->second);
  } else if (const auto found = containing(m->blocks, address);
             found != m->blocks.end() && found->second.kind == block_kind::device) {
    if (size > found->first + found->second.bytes - address) return hipErrorInvalidValue;
    file = &m->own_file(found->first, found->second);
  }
  const int descriptor = file ? file->share() : -1;
  if (descriptor < 0) return hipErrorInvalidValue;
  *static_cast<int*>(handle) = descriptor;
  return hipSuccess;
}

hipError_t hipMemImportFromShareableHandle(hipMemGenericAllocationHandle_t* handle, void* osHandle,
                                           hipMemAllocationHandleType shHandleType) {
  if (!handle || !osHandle) return hipErrorInvalidValue;
  writing m;
  if (!m->rules.exports_descriptors) return hipErrorNotSupported;
  if (shHandleType == hipMemHandleTypeFabric && m->rules.fabric_handles) {
    note("hipMemImportFromShareableHandle", "there is no fabric");
    return hipErrorInvalidValue;
  }
  const auto value = address_of(osHandle);
  const bool by_value = value < descriptors_end;
  if (m->quirk(by_value ? "import_by_pointer" : "import_by_value")) {
    return undefined("hipMemImportFromShareableHandle",
                     by_value ? "a descriptor is read as a pointer" : "a pointer is read as a descriptor");
  }
  int descriptor = static_cast<int>(value);
  if (!by_value) read_host(value, &descriptor, sizeof descriptor);
  const auto owner = owner_of_memory_file(descriptor);
  if (owner.empty()) {
    note("hipMemImportFromShareableHandle",
         "descriptor " + std::to_string(descriptor) + " was not exported by HIP");
    return hipErrorInvalidValue;
  }
  auto file = memory_file::duplicate(descriptor);
  auto memory = m->known_memory(file->identity());
  if (!memory) {  // memory of another process, which is charged for it
    memory = std::make_shared<physical>();
    memory->device = m->owner_named(owner, current_device());
    memory->bytes = file->bytes();
    memory->identity = file->identity();
    memory->memory = extent(std::move(file), 0, memory->bytes);
  }
  allocation_properties properties;
  properties.type = hipMemAllocationTypePinned;
  const bool hosts = m->rules.imports_know_owner && memory->device == host_device;
  properties.location_type = hosts ? hipMemLocationTypeHost : hipMemLocationTypeDevice;
  properties.location_id = hosts ? 0 : m->rules.imports_know_owner ? memory->device : current_device();
  if (m->rules.imports_know_handle_type) properties.handle_type = shHandleType;
  const auto id = m->add_allocation(std::move(memory), properties);
  m->allocations.at(id).imported = true;
  m->allocations.at(id).descriptor = descriptor;
  *handle = reinterpret_cast<hipMemGenericAllocationHandle_t>(id);
  return hipSuccess;
}

}  // namespace hipsim::calls
