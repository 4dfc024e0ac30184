#include "queries.hpp"

#include "scoped_device.hpp"

namespace hipplan {
namespace {

std::string at(std::uintptr_t address) { return "the memory at " + hexadecimal(address); }

hip::hipMemGenericAllocationHandle_t native_handle(std::uintptr_t handle) {
  return reinterpret_cast<hip::hipMemGenericAllocationHandle_t>(handle);
}

}  // namespace

int driver_version(hip::runtime& runtime) {
  int version = 0;
  runtime.check(runtime.hipDriverGetVersion(&version), "hipDriverGetVersion", "this machine");
  return version;
}

int device_count(hip::runtime& runtime) {
  int count = 0;
  const auto result = runtime.hipGetDeviceCount(&count);
  if (result == hip::hipErrorNoDevice) {
    runtime.forget_last_error();
    return 0;
  }
  runtime.check(result, "hipGetDeviceCount", "this machine");
  return count;
}

int current_device(hip::runtime& runtime) {
  int device = 0;
  runtime.check(runtime.hipGetDevice(&device), "hipGetDevice", "this machine");
  return device;
}

std::string device_name(hip::runtime& runtime, device_id device) {
  char name[256] = {};
  runtime.check(runtime.hipDeviceGetName(name, sizeof name, device.value), "hipDeviceGetName", text(device));
  return name;
}

std::string device_arch(hip::runtime& runtime, device_id device) {
  hip::hipDeviceProp_tR0600 properties{};
  if (runtime.hipGetDevicePropertiesR0600(&properties, device.value) != hip::hipSuccess) {
    runtime.forget_last_error();
    return {};
  }
  properties.gcnArchName[sizeof properties.gcnArchName - 1] = '\0';
  return properties.gcnArchName;
}

std::string device_uuid(hip::runtime& runtime, device_id device) {
  hip::hipUUID uuid{};
  if (runtime.hipDeviceGetUuid(&uuid, device.value) != hip::hipSuccess) {
    runtime.forget_last_error();
    return {};
  }
  return {uuid.bytes, sizeof uuid.bytes};
}

std::string pci_bus_id(hip::runtime& runtime, device_id device) {
  char id[64] = {};
  runtime.check(runtime.hipDeviceGetPCIBusId(id, sizeof id, device.value), "hipDeviceGetPCIBusId",
                text(device));
  return id;
}

std::pair<std::size_t, std::size_t> memory_info(hip::runtime& runtime, device_id device) {
  const scoped_device current(runtime, device);
  std::size_t free = 0;
  std::size_t total = 0;
  runtime.check(runtime.hipMemGetInfo(&free, &total), "hipMemGetInfo", text(device));
  return {free, total};
}

std::optional<int> device_attribute(hip::runtime& runtime, device_id device, int attribute) {
  int value = 0;
  const auto result =
      runtime.hipDeviceGetAttribute(&value, static_cast<hip::hipDeviceAttribute_t>(attribute), device.value);
  if (result == hip::hipErrorInvalidValue) {  // the runtime does not know the attribute
    runtime.forget_last_error();
    return std::nullopt;
  }
  runtime.check(result, "hipDeviceGetAttribute", text(device), "attribute=" + std::to_string(attribute));
  return value;
}

bool can_access_peer(hip::runtime& runtime, device_id device, device_id peer) {
  int can = 0;
  runtime.check(runtime.hipDeviceCanAccessPeer(&can, device.value, peer.value), "hipDeviceCanAccessPeer",
                text(device), "peer=" + std::to_string(peer.value));
  return can != 0;
}

std::optional<std::pair<unsigned, unsigned>> link(hip::runtime& runtime, device_id from, device_id to) {
  std::uint32_t type = 0;
  std::uint32_t hops = 0;
  if (runtime.hipExtGetLinkTypeAndHopCount(from.value, to.value, &type, &hops) != hip::hipSuccess) {
    runtime.forget_last_error();
    return std::nullopt;
  }
  return std::pair{type, hops};
}

void synchronize(hip::runtime& runtime, device_id device) {
  const scoped_device current(runtime, device);
  runtime.check(runtime.hipDeviceSynchronize(), "hipDeviceSynchronize", text(device));
}

std::size_t granularity(hip::runtime& runtime, const allocation_properties& properties, bool recommended) {
  std::size_t bytes = 0;
  const auto native = properties.native();
  const auto result = runtime.hipMemGetAllocationGranularity(
      &bytes, &native,
      recommended ? hip::hipMemAllocationGranularityRecommended : hip::hipMemAllocationGranularityMinimum);
  runtime.check(result, "hipMemGetAllocationGranularity", text(device_id{properties.location_id}));
  return bytes;
}

unsigned long long access(hip::runtime& runtime, device_id device, std::uintptr_t address) {
  unsigned long long flags = 0;
  const hip::hipMemLocation location{hip::hipMemLocationTypeDevice, device.value};
  runtime.check(runtime.hipMemGetAccess(&flags, &location, pointer_at(address)), "hipMemGetAccess",
                [&] { return std::pair(at(address), "for " + text(device)); });
  return flags;
}

allocation_properties properties_of(hip::runtime& runtime, std::uintptr_t handle) {
  hip::hipMemAllocationProp native{};
  runtime.check(runtime.hipMemGetAllocationPropertiesFromHandle(&native, native_handle(handle)),
                "hipMemGetAllocationPropertiesFromHandle", [&] {
                  return std::pair("the allocation with handle " + hexadecimal(handle), std::string());
                });
  return {native.type, native.location.type, native.location.id, native.requestedHandleType,
          native.allocFlags.gpuDirectRDMACapable != 0};
}

int range_attribute(hip::runtime& runtime, std::uintptr_t address, std::size_t size_bytes,
                    hip::hipMemRangeAttribute attribute) {
  int value = 0;
  runtime.check(
      runtime.hipMemRangeGetAttribute(&value, sizeof value, attribute, pointer_at(address), size_bytes),
      "hipMemRangeGetAttribute", at(address), "attribute=" + std::to_string(attribute));
  return value;
}

std::vector<int> accessed_by(hip::runtime& runtime, std::uintptr_t address, std::size_t size_bytes) {
  std::vector<int> devices(static_cast<std::size_t>(device_count(runtime)) + 1, hip::hipInvalidDeviceId);
  const auto result =
      runtime.hipMemRangeGetAttribute(devices.data(), devices.size() * sizeof(int),
                                      hip::hipMemRangeAttributeAccessedBy, pointer_at(address), size_bytes);
  runtime.check(result, "hipMemRangeGetAttribute", at(address), "attribute=AccessedBy");
  std::erase(devices, hip::hipInvalidDeviceId);
  return devices;
}

hip::hipPointerAttribute_t pointer_attributes(hip::runtime& runtime, std::uintptr_t address) {
  hip::hipPointerAttribute_t attributes{};
  runtime.check(runtime.hipPointerGetAttributes(&attributes, pointer_at(address)), "hipPointerGetAttributes",
                at(address));
  return attributes;
}

std::pair<std::uintptr_t, std::size_t> address_range_of(hip::runtime& runtime, std::uintptr_t address) {
  void* base = nullptr;
  std::size_t size_bytes = 0;
  runtime.check(runtime.hipMemGetAddressRange(&base, &size_bytes, pointer_at(address)),
                "hipMemGetAddressRange", [&] { return std::pair(at(address), std::string()); });
  return {reinterpret_cast<std::uintptr_t>(base), size_bytes};
}

int dma_buf_of(hip::runtime& runtime, std::uintptr_t address, std::size_t size_bytes) {
  int descriptor = -1;
  const auto result = runtime.hipMemGetHandleForAddressRange(&descriptor, pointer_at(address), size_bytes,
                                                             hip::hipMemRangeHandleTypeDmaBufFd, 0);
  runtime.check(result, "hipMemGetHandleForAddressRange", at(address), "size=" + std::to_string(size_bytes));
  return descriptor;
}

unsigned int host_flags(hip::runtime& runtime, std::uintptr_t address) {
  unsigned int flags = 0;
  runtime.check(runtime.hipHostGetFlags(&flags, pointer_at(address)), "hipHostGetFlags", at(address));
  return flags;
}

std::uintptr_t device_pointer(hip::runtime& runtime, std::uintptr_t host_address) {
  void* out = nullptr;
  runtime.check(runtime.hipHostGetDevicePointer(&out, pointer_at(host_address), 0), "hipHostGetDevicePointer",
                at(host_address));
  return reinterpret_cast<std::uintptr_t>(out);
}

}  // namespace hipplan
