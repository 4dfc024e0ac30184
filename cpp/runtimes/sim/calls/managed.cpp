// Managed memory: allocation, advice, prefetch. managed_queries.cpp answers queries about the result.
#include <sys/mman.h>

#include <algorithm>
#include <vector>

#include "access.hpp"
#include "calls/support.hpp"
#include "host_access.hpp"

namespace hipsim::calls {
namespace {

bool is_location(const machine& m, int device) { return device == hipCpuDeviceId || m.is_device(device); }

// The pages of a range, rounded outward: HMM works on whole pages.
struct page_range {
  block* owner;
  std::uint64_t from;
  std::uint64_t to;
};

page_range pages(machine& m, std::uintptr_t address, std::uint64_t count) {
  const auto found = containing(m.blocks, address);
  if (found == m.blocks.end() || found->second.kind != block_kind::managed) return {nullptr, 0, 0};
  const auto into = address - found->first;
  return {&found->second, into & ~(page_bytes - 1), page_ceiling(into + count)};
}

bool is_advice(unsigned int advice) {
  return (advice >= hipMemAdviseSetReadMostly && advice <= hipMemAdviseUnsetAccessedBy) ||
         advice == hipMemAdviseSetCoarseGrain || advice == hipMemAdviseUnsetCoarseGrain;
}

// For the CPU AMD's library takes the first device's entry away, and never the CPU's.
void set_accessed_by(managed_state& state, int device, bool on) {
  if (device == hipCpuDeviceId && on) {
    state.accessed_by_cpu = true;
    return;
  }
  device = std::max(device, 0);
  const auto bit = std::uint64_t{1} << device;
  state.accessed_by = on ? state.accessed_by | bit : state.accessed_by & ~bit;
}

void advise_run(managed_state& state, hipMemoryAdvise advice, int device) {
  switch (advice) {
    case hipMemAdviseSetReadMostly:
      state.read_mostly = true;
      break;
    case hipMemAdviseUnsetReadMostly:
      state.read_mostly = false;
      break;
    case hipMemAdviseSetPreferredLocation:
      state.preferred = device;
      break;
    case hipMemAdviseUnsetPreferredLocation:
      state.preferred = no_location;
      break;
    case hipMemAdviseSetAccessedBy:
      set_accessed_by(state, device, true);
      break;
    case hipMemAdviseUnsetAccessedBy:
      set_accessed_by(state, device, false);
      break;
    case hipMemAdviseSetCoarseGrain:
      state.coarse_grain = true;
      break;
    case hipMemAdviseUnsetCoarseGrain:
      state.coarse_grain = false;
      break;
  }
}

bool ignores_device(unsigned int advice) {
  return advice == hipMemAdviseSetReadMostly || advice == hipMemAdviseUnsetReadMostly;
}

hipError_t check_device(const machine& m, hipMemoryAdvise advice, int device) {
  return ignores_device(advice) || is_location(m, device) ? hipSuccess : hipErrorInvalidDevice;
}

hipError_t advise(machine& m, const void* ptr, std::size_t count, hipMemoryAdvise advice, int device) {
  if (m.rules.advise_checks_device_first) {
    if (const auto code = check_device(m, advice, device); code != hipSuccess) return code;
  }
  if (!ptr || count == 0) return hipErrorInvalidValue;
  if (!m.rules.advise_checks_device_first) {
    if (const auto code = check_device(m, advice, device); code != hipSuccess) return code;
  }
  if (count > room_at(m, address_of(ptr))) return hipErrorInvalidValue;
  if (!m.has_hmm()) return hipSuccess;  // all advice is ignored, even unknown advice
  if (!is_advice(advice)) return hipErrorInvalidValue;
  const auto range = pages(m, address_of(ptr), count);
  if (!range.owner) {
    const auto found = containing(m.blocks, address_of(ptr));
    const bool registered = found != m.blocks.end() && found->second.kind == block_kind::registered;
    const bool the_program_s = registered || !is_known(m, address_of(ptr));
    return the_program_s && m.has_xnack() ? hipSuccess : hipErrorInvalidValue;
  }
  range.owner->managed.update(range.from, range.to, [&](auto& state) { advise_run(state, advice, device); });
  return hipSuccess;
}

hipError_t prefetch(const char* function, machine& m, const void* ptr, std::size_t count, int device,
                    hipStream_t stream) {
  if (!ptr || count == 0) return hipErrorInvalidValue;
  int engine = 0;
  if (const auto code = stream_device(function, m, stream, engine); code != hipSuccess) return code;
  const bool too_long = is_known(m, address_of(ptr)) && count > room_at(m, address_of(ptr));
  if (too_long) return hipErrorInvalidValue;
  if (!is_location(m, device)) return hipErrorInvalidDevice;
  const bool pageable = !is_known(m, address_of(ptr));
  if (pageable && device != hipCpuDeviceId && !m.has_xnack()) return hipErrorNotSupported;
  const auto range = pages(m, address_of(ptr), count);
  if (m.has_hmm() && range.owner) {
    range.owner->managed.update(range.from, range.to, [&](auto& state) { state.last_prefetch = device; });
  }
  return hipSuccess;
}

struct discarded {
  std::uintptr_t address;
  std::size_t bytes;
};

hipError_t check_discard(const machine& m, const discarded& range) {
  if (range.address == 0 || range.bytes == 0) return hipErrorInvalidValue;
  const auto found = containing(m.blocks, range.address);
  if (found == m.blocks.end() || found->second.kind != block_kind::managed)
    return m.has_xnack() ? hipSuccess : hipErrorNotSupported;
  return range.bytes > room_at(m, range.address) ? hipErrorInvalidValue : hipSuccess;
}

// What was discarded may read as anything. Whole pages of managed memory read as zeros here: a program that
// relies on their bytes fails at once.
void discard(machine& m, const discarded& range) {
  if (!pages(m, range.address, range.bytes).owner) return;
  const auto from = page_ceiling(range.address);
  const auto to = (range.address + range.bytes) & ~(page_bytes - 1);
  if (from < to) (void)madvise(pointer_to(from), to - from, MADV_DONTNEED);
}

// The device of a location in the _v2 calls, for which -1 is not valid.
hipError_t device_of(const machine& m, hipMemLocation location, int& device) {
  switch (location.type) {
    case hipMemLocationTypeDevice:
      device = location.id == hipCpuDeviceId ? hipInvalidDeviceId : location.id;
      return m.is_device(device) ? hipSuccess : hipErrorInvalidDevice;
    case hipMemLocationTypeHost:
    case hipMemLocationTypeHostNuma:
    case hipMemLocationTypeHostNumaCurrent:
      device = hipCpuDeviceId;
      return hipSuccess;
    default:
      return hipErrorInvalidValue;
  }
}

}  // namespace

hipError_t hipMallocManaged(void** ptr, std::size_t size, unsigned int flags) {
  const bool known_flags = flags == hipMemAttachGlobal || flags == hipMemAttachHost;
  if (!ptr || size == 0 || !known_flags) return hipErrorInvalidValue;
  *ptr = nullptr;
  return allocate_on_host(ptr, size, block_kind::managed, flags);
}

hipError_t hipMemAdvise(const void* ptr, std::size_t count, hipMemoryAdvise advice, int device) {
  writing m;
  return advise(*m, ptr, count, advice, device);
}

hipError_t hipMemAdvise_v2(const void* ptr, std::size_t count, hipMemoryAdvise advice,
                           hipMemLocation location) {
  writing m;
  if (!m->rules.location_calls) return hipErrorNotSupported;
  if (!ptr || count == 0) return hipErrorInvalidValue;
  int device = 0;
  const auto code = device_of(*m, location, device);
  if (code != hipSuccess && !(code == hipErrorInvalidDevice && ignores_device(advice))) return code;
  return advise(*m, ptr, count, advice, device);
}

hipError_t hipMemPrefetchAsync(const void* ptr, std::size_t count, int device, hipStream_t stream) {
  writing m;
  return prefetch("hipMemPrefetchAsync", *m, ptr, count, device, stream);
}

hipError_t hipMemPrefetchAsync_v2(const void* ptr, std::size_t count, hipMemLocation location,
                                  unsigned int flags, hipStream_t stream) {
  writing m;
  if (!m->rules.location_calls) return hipErrorNotSupported;
  if (flags != 0) return hipErrorInvalidValue;
  int device = 0;
  if (device_of(*m, location, device) == hipErrorInvalidValue) {  // AMD treats other types as a device
    (void)device_of(*m, {hipMemLocationTypeDevice, location.id}, device);
  }
  return prefetch("hipMemPrefetchAsync_v2", *m, ptr, count, device, stream);
}

hipError_t hipMemDiscardBatchAsync(void** dev_ptrs, std::size_t* sizes, std::size_t count,
                                   unsigned long long flags, hipStream_t stream) {
  if (!dev_ptrs || !sizes || count == 0 || flags != 0 || !stream) return hipErrorInvalidValue;
  wait_for_stream(stream);
  writing m;
  if (!m->rules.discards) return hipErrorNotSupported;
  int engine = 0;
  const auto code = stream_device("hipMemDiscardBatchAsync", *m, stream, engine);
  if (code != hipSuccess) return code;
  std::vector<discarded> ranges;
  for (std::size_t i = 0; i < count; ++i) {
    discarded range{};
    read_host(address_of(static_cast<const void*>(dev_ptrs + i)), &range.address, sizeof range.address);
    read_host(address_of(sizes + i), &range.bytes, sizeof range.bytes);
    if (const auto refusal = check_discard(*m, range); refusal != hipSuccess) return refusal;
    ranges.push_back(range);
  }
  if (!m->has_hmm()) return hipErrorNotSupported;
  for (const auto& range : ranges) discard(*m, range);
  return hipSuccess;
}

hipError_t hipDrvMemDiscardBatchAsync(hipDeviceptr_t* dptrs, std::size_t* sizes, std::size_t count,
                                      unsigned long long flags, hipStream_t stream) {
  return hipMemDiscardBatchAsync(dptrs, sizes, count, flags, stream);
}

hipError_t hipStreamAttachMemAsync(hipStream_t stream, void* ptr, std::size_t length, unsigned int flags) {
  if (!ptr) return hipErrorInvalidValue;
  const reading m;
  int engine = 0;
  if (const auto code = stream_device("hipStreamAttachMemAsync", *m, stream, engine); code != hipSuccess)
    return code;
  const bool known_flags =
      flags == hipMemAttachGlobal || flags == hipMemAttachHost || flags == hipMemAttachSingle;
  if (!known_flags || (flags == hipMemAttachSingle && !stream)) return hipErrorInvalidValue;
  const auto found = containing(m->blocks, address_of(ptr));
  if (!is_known(*m, address_of(ptr)))
    return m->has_xnack() && length != 0 ? hipSuccess : hipErrorInvalidValue;
  // No effect, as on AMD, which accepts any length for device and registered memory.
  const auto kind = found == m->blocks.end() ? block_kind::device : found->second.kind;
  if (kind == block_kind::device || kind == block_kind::registered) return hipSuccess;
  return length == 0 || length == found->second.bytes ? hipSuccess : hipErrorInvalidValue;
}

}  // namespace hipsim::calls
