// hipMalloc, hipFree and their variants.
#include <new>

#include "calls/support.hpp"

namespace hipsim::calls {
namespace {

constexpr std::size_t pitch_alignment_bytes = 256;

// Largest single allocation: a share of the device's memory; up to 6.x also the host's.
std::uint64_t largest_allocation(const machine& m, int device) {
  const auto& shape = m.shape(device);
  const auto share = static_cast<std::uint64_t>(static_cast<unsigned __int128>(shape.memory_bytes) *
                                                m.profile.max_allocation_percent / 100);
  return m.rules.single_allocation_within_host_memory ? std::min(share, m.profile.host_memory_bytes) : share;
}

hipError_t allocate(void** ptr, std::size_t size, int device, std::uint32_t flags, bool pooled = false) {
  if (!ptr) return hipErrorInvalidValue;
  if (size == 0) {
    *ptr = nullptr;
    return hipSuccess;
  }
  writing m;
  if (size > largest_allocation(*m, device)) return hipErrorOutOfMemory;
  const auto bytes = page_ceiling(size);
  auto counted = m->charged(device, bytes);
  block fresh;
  fresh.kind = block_kind::device;
  fresh.bytes = size;
  fresh.device = device;
  fresh.flags = flags;
  fresh.pooled = pooled;
  fresh.memory = m->at(device).pool.take(bytes);
  const auto address = m->show_device_memory(fresh);
  if (address == 0) return hipErrorOutOfMemory;
  counted.keep();
  m->at(device).used = true;
  *ptr = pointer_to(address);
  return hipSuccess;
}

// The device of a stream; up to 6.x these calls have a code of their own for an invalid one.
hipError_t pool_device(const char* function, hipStream_t stream, int& device) {
  const auto code = stream_device(function, *reading(), stream, device);
  return code == hipErrorContextIsDestroyed ? hipErrorInvalidHandle : code;
}

}  // namespace

hipError_t hipMalloc(void** ptr, std::size_t size) { return allocate(ptr, size, current_device(), 0); }

hipError_t hipExtMallocWithFlags(void** ptr, std::size_t size, unsigned int flags) {
  // default 0, fine-grained 1, signal 2 (8 bytes only), uncached 3, contiguous 4
  if (!ptr || flags > 4 || (flags == 2 && size != 8)) return hipErrorInvalidValue;
  return allocate(ptr, size, current_device(), flags);
}

hipError_t hipMallocAsync(void** ptr, std::size_t size, hipStream_t stream) {
  if (!ptr) return hipErrorInvalidValue;
  int device = 0;
  if (const auto code = pool_device("hipMallocAsync", stream, device); code != hipSuccess) return code;
  *ptr = nullptr;
  return allocate(ptr, size, device, 0, true);
}

hipError_t hipMallocPitch(void** ptr, std::size_t* pitch, std::size_t width, std::size_t height) {
  if (!ptr || !pitch) return hipErrorInvalidValue;
  if (width == 0 || height == 0) {
    *ptr = nullptr;
    return hipSuccess;
  }
  const std::size_t row = (width + pitch_alignment_bytes - 1) & ~(pitch_alignment_bytes - 1);
  if (row < width) return hipErrorInvalidValue;
  *pitch = row;
  const std::size_t bytes = row * height;  // as on AMD, the product may overflow, even to 0
  if (bytes / row != height) note("hipMallocPitch", "pitch times height overflows: the memory is too small");
  const auto code = allocate(ptr, bytes, current_device(), 0);
  return bytes == 0 ? hipErrorOutOfMemory : code;
}

hipError_t hipMemAllocPitch(hipDeviceptr_t* ptr, std::size_t* pitch, std::size_t width, std::size_t height,
                            unsigned int element) {
  if (element != 4 && element != 8 && element != 16) return hipErrorInvalidValue;
  if (width == 0 || height == 0) return hipErrorInvalidValue;
  return hipMallocPitch(ptr, pitch, width, height);
}

hipError_t hipFree(void* ptr) {
  if (!ptr) return hipSuccess;
  wait_for(unfinished_on(host_device));  // the program's functions may use it
  writing m;
  const auto address = address_of(ptr);
  const auto found = containing(m->blocks, address);
  const bool registered = found != m->blocks.end() && found->second.kind == block_kind::registered;
  if (registered && m->rules.free_takes_registered) {
    m->drop_block(found);
    return hipSuccess;
  }
  if (registered) return undefined("hipFree", hex(address) + " is registered memory");
  if (found == m->blocks.end()) {
    const bool mapped = containing(m->mappings, address) != m->mappings.end();
    return mapped ? undefined("hipFree", hex(address) + " is mapped virtual memory") : hipErrorInvalidValue;
  }
  if (found->second.foreign)
    return undefined("hipFree", hex(address) + " was opened with hipIpcOpenMemHandle");
  if (found->first != address && !m->quirk("free_interior_pointer")) {
    note("hipFree", hex(address) + " is inside an allocation, not its start; 6.3 would free all of it");
    return hipErrorInvalidValue;
  }
  m->drop_block(found);
  return hipSuccess;
}

hipError_t hipFreeAsync(void* ptr, hipStream_t stream) {
  int device = 0;
  if (const auto code = pool_device("hipFreeAsync", stream, device); code != hipSuccess) return code;
  if (!ptr) return reading()->rules.free_async_takes_null ? hipSuccess : hipErrorInvalidValue;
  bool unrecorded = false;  // memory that is not from a pool
  {
    const reading m;
    const auto found = containing(m->blocks, address_of(ptr));
    unrecorded = found != m->blocks.end() && !found->second.pooled;
  }
  const auto freed = hipFree(ptr);
  process::thread().unrecorded = unrecorded && freed == hipSuccess;
  return freed;
}

}  // namespace hipsim::calls
