// Devices: count, choice, names, sizes, synchronisation, reset.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "calls/support.hpp"

namespace hipsim::calls {
namespace {

void copy_text(char* out, int length, const std::string& text) {
  std::snprintf(out, static_cast<std::size_t>(length), "%s", text.c_str());
}

}  // namespace

hipError_t hipGetDeviceCount(int* count) {
  if (!count) return hipErrorInvalidValue;
  *count = reading()->device_count();
  return *count == 0 ? hipErrorNoDevice : hipSuccess;
}

hipError_t hipSetDevice(int device) {
  const reading m;
  if (m->device_count() == 0) return hipErrorNoDevice;
  if (!m->is_device(device)) return hipErrorInvalidDevice;
  process::thread().device = device;
  return hipSuccess;
}

hipError_t hipGetDevice(int* device) {
  if (!device) return hipErrorInvalidValue;
  *device = current_device();
  return hipSuccess;
}

hipError_t hipDeviceGet(hipDevice_t* device, int ordinal) {
  if (!device) return hipErrorInvalidValue;
  if (!reading()->is_device(ordinal)) return hipErrorInvalidDevice;
  *device = ordinal;
  return hipSuccess;
}

hipError_t hipDeviceGetByPCIBusId(int* device, const char* pciBusId) {
  if (!device || !pciBusId) return hipErrorInvalidValue;
  const reading m;
  for (int i = 0; i < m->device_count(); ++i) {
    if (m->shape(i).pci == pciBusId) {
      *device = i;
      return hipSuccess;
    }
  }
  return hipErrorInvalidValue;
}

hipError_t hipDeviceGetName(char* name, int length, hipDevice_t device) {
  if (!name || length <= 0) return hipErrorInvalidValue;
  const reading m;
  if (!m->is_device(device)) return hipErrorInvalidDevice;
  copy_text(name, length, m->shape(device).name);
  return hipSuccess;
}

hipError_t hipDeviceTotalMem(std::size_t* bytes, hipDevice_t device) {
  const reading m;
  if (!m->is_device(device)) return hipErrorInvalidDevice;
  if (!bytes) return hipErrorInvalidValue;
  *bytes = m->shape(device).memory_bytes;
  return hipSuccess;
}

hipError_t hipDeviceGetPCIBusId(char* pciBusId, int length, int device) {
  const reading m;
  if (!m->is_device(device)) return hipErrorInvalidDevice;
  if (!pciBusId || length <= 0) return hipErrorInvalidValue;
  copy_text(pciBusId, length, m->shape(device).pci);
  return hipSuccess;
}

hipError_t hipDeviceGetUuid(hipUUID* uuid, hipDevice_t device) {
  if (!uuid) return hipErrorInvalidValue;
  const reading m;
  if (!m->is_device(device)) return hipErrorInvalidDevice;
  std::memcpy(uuid->bytes, m->shape(device).uuid.data(), sizeof uuid->bytes);
  return hipSuccess;
}

hipError_t hipGetDeviceFlags(unsigned int* flags) {
  if (!flags) return hipErrorInvalidValue;
  *flags = 1;  // hipDeviceScheduleSpin: no call ever waits
  return hipSuccess;
}

hipError_t hipSetDeviceFlags(unsigned int flags) {
  constexpr unsigned int known = 0x1f;  // scheduling, mapped host memory, local-memory resize
  return (flags & ~known) == 0 ? hipSuccess : hipErrorInvalidValue;
}

// Every call does its work before it returns: there is nothing to wait for but the program's functions.
hipError_t hipDeviceSynchronize() {
  wait_for(unfinished_on(current_device()));
  return hipSuccess;
}

hipError_t hipDeviceReset() {
  wait_for(unfinished_on(current_device()));
  writing m;
  const int device = current_device();
  for (auto it = m->blocks.begin(); it != m->blocks.end();) {
    const auto next = std::next(it);
    if (it->second.kind == block_kind::device && it->second.device == device) m->drop_block(it);
    it = next;
  }
  std::erase_if(m->streams, [&](auto& entry) { return entry.second.device == device; });
  m->at(device).peers = 0;
  return hipSuccess;
}

hipError_t hipMemGetInfo(std::size_t* free, std::size_t* total) {
  const reading m;
  const int device = current_device();
  const auto left = m->free_bytes(device) & ~std::size_t{1023};  // the kernel driver reports KiB
  if (free) *free = left - std::min(left, m->profile.hidden_free_bytes);
  if (total) *total = m->shape(device).memory_bytes;
  return hipSuccess;
}

}  // namespace hipsim::calls
