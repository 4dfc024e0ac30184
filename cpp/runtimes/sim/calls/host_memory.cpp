// Pinned and registered host memory.
#include <sys/mman.h>
#include <unistd.h>

#include <vector>

#include "access.hpp"
#include "calls/support.hpp"

namespace hipsim::calls {
namespace {

hipError_t allocate(void** ptr, std::size_t size, unsigned int flags) {
  if (!ptr) return hipErrorInvalidValue;
  *ptr = nullptr;
  return size == 0 ? hipSuccess : allocate_on_host(ptr, size, block_kind::pinned, flags);
}

// Whether all pages of a range are mapped: mincore fails for a range with a hole.
bool has_pages(std::uintptr_t address, std::uint64_t bytes) {
  constexpr std::uint64_t step = std::uint64_t{1} << 30;
  std::vector<unsigned char> residency(std::min(page_ceiling(bytes) + page_bytes, step) / page_bytes);
  const auto end = page_ceiling(address + bytes);
  for (auto at = address & ~(page_bytes - 1); at < end; at += step) {
    if (mincore(pointer_to(at), std::min(step, end - at), residency.data()) != 0) return false;
  }
  return true;
}

bool register_flags_allowed(const machine& m, unsigned int flags) {
  if (m.rules.register_any_low_flags) return flags <= 15;
  const unsigned int known = hipHostRegisterPortable | hipHostRegisterMapped | hipHostRegisterReadOnly |
                             0x80000000u | (m.rules.register_io_memory ? hipHostRegisterIoMemory : 0u);
  return (flags & ~known) == 0;
}

}  // namespace

hipError_t allocate_on_host(void** ptr, std::size_t size, block_kind kind, unsigned int flags) {
  writing m;
  const auto bytes = page_ceiling(size);
  if (bytes < size) return hipErrorOutOfMemory;
  auto counted = m->charged(host_device, bytes);
  block fresh;
  fresh.kind = kind;
  fresh.bytes = size;
  fresh.device = current_device();
  fresh.flags = flags;
  if (kind == block_kind::managed) fresh.managed = managed_ranges(bytes);
  const auto address = host_pages(bytes);
  if (address == 0) return hipErrorOutOfMemory;
  try {
    m->add_block(address, std::move(fresh));
  } catch (...) {
    munmap(pointer_to(address), bytes);
    throw;
  }
  counted.keep();
  *ptr = pointer_to(address);
  return hipSuccess;
}

hipError_t hipHostMalloc(void** ptr, std::size_t size, unsigned int flags) {
  if (!ptr) return hipErrorInvalidValue;
  *ptr = nullptr;
  if (size == 0) return hipSuccess;
  const bool coherent = (flags & hipHostMallocCoherent) != 0;
  const bool non_coherent = (flags & hipHostMallocNonCoherent) != 0;
  const bool uncached = (flags & hipHostMallocUncached) != 0 && reading()->rules.uncached_host_flag;
  if (coherent + non_coherent + uncached > 1) return hipErrorInvalidValue;
  return allocate(ptr, size, flags);
}

// Unlike the others it leaves the output as it is where there is no memory.
hipError_t hipMallocHost(void** ptr, std::size_t size) {
  if (!ptr) return hipErrorInvalidValue;
  if (size != 0) return allocate_on_host(ptr, size, block_kind::pinned, 0);
  *ptr = nullptr;
  return hipSuccess;
}

hipError_t hipMemAllocHost(void** ptr, std::size_t size) { return allocate(ptr, size, 0); }

hipError_t hipHostAlloc(void** ptr, std::size_t size, unsigned int flags) {
  const unsigned int known = reading()->rules.uncached_host_flag ? 7 | hipHostMallocUncached : 7;
  if (!ptr || (flags & ~known) != 0) return hipErrorInvalidValue;
  return allocate(ptr, size, flags);
}

// hipFree and hipHostFree accept each other's memory, but only hipFree accepts registered memory.
hipError_t hipHostFree(void* ptr) {
  const auto is_registered = [&] {
    const reading m;
    const auto found = containing(m->blocks, address_of(ptr));
    return found != m->blocks.end() && found->second.kind == block_kind::registered;
  };
  return is_registered() ? hipErrorInvalidValue : hipFree(ptr);
}

hipError_t hipFreeHost(void* ptr) { return hipHostFree(ptr); }

hipError_t hipHostRegister(void* hostPtr, std::size_t sizeBytes, unsigned int flags) {
  if (!hostPtr || sizeBytes == 0) return hipErrorInvalidValue;
  writing m;
  const auto address = address_of(hostPtr);
  const bool ends =
      page_ceiling(address + sizeBytes) > address;  // false in the last page of the address space
  if (!register_flags_allowed(*m, flags) || wraps(address, sizeBytes) || !ends) return hipErrorInvalidValue;
  if (sizeBytes > m->free_bytes(host_device)) return static_cast<hipError_t>(m->rules.register_too_much_code);
  if (!has_pages(address, sizeBytes)) return hipErrorInvalidValue;
  if (m->addresses.overlaps(address, sizeBytes)) {
    note("hipHostRegister",
         hex(address) + " is memory of a device or a reserved address: it cannot be pinned");
    return hipErrorInvalidValue;
  }
  if (m->blocks.contains(address)) {
    note("hipHostRegister", hex(address) + " is known already; the first record stays");
    return static_cast<hipError_t>(m->rules.register_again_code);
  }
  auto counted = m->charged(host_device, sizeBytes);
  block fresh;
  fresh.kind = block_kind::registered;
  fresh.bytes = sizeBytes;
  fresh.device = current_device();
  fresh.flags = flags;
  m->add_block(address, std::move(fresh));
  counted.keep();
  return hipSuccess;
}

hipError_t hipHostUnregister(void* hostPtr) {
  if (!hostPtr) return hipErrorInvalidValue;
  writing m;
  const auto found = m->blocks.find(address_of(hostPtr));
  if (found == m->blocks.end() || found->second.kind != block_kind::registered) {
    return hipErrorHostMemoryNotRegistered;
  }
  m->drop_block(found);
  return hipSuccess;
}

hipError_t hipHostGetDevicePointer(void** devPtr, void* hostPtr, unsigned int flags) {
  if (!devPtr || flags != 0 || !is_known(*reading(), address_of(hostPtr))) return hipErrorInvalidValue;
  *devPtr = hostPtr;
  return hipSuccess;
}

// Fails for registered memory; managed memory has no flags.
hipError_t hipHostGetFlags(unsigned int* flags, void* hostPtr) {
  if (!flags || !hostPtr) return hipErrorInvalidValue;
  const reading m;
  const auto found = containing(m->blocks, address_of(hostPtr));
  if (found == m->blocks.end()) return hipErrorInvalidValue;
  const auto kind = found->second.kind;
  if (kind != block_kind::pinned && kind != block_kind::managed) return hipErrorInvalidValue;
  *flags = kind == block_kind::managed ? 0 : found->second.flags;
  return hipSuccess;
}

}  // namespace hipsim::calls
