// hipMemMap, hipMemUnmap, hipMemMapArrayAsync.
#include "calls/support.hpp"

namespace hipsim::calls {
namespace {

bool overlaps_a_piece(const machine& m, std::uintptr_t address, std::uint64_t bytes) {
  const auto next = m.mappings.lower_bound(address);
  if (next != m.mappings.end() && next->first < address + bytes) return true;
  return containing(m.mappings, address) != m.mappings.end();
}

// Why the driver would refuse to map there, or null.
const char* map_refusal(const machine& m, std::uintptr_t address, std::size_t size,
                        const allocation& memory) {
  const auto place = containing(m.reservations, address);
  if (place == m.reservations.end() || place->second.forgotten) return "the address is in no reservation";
  if (size > place->second.bytes - (address - place->first)) return "the range runs past its reservation";
  if (size > memory.memory->bytes) return "the handle holds less memory than that";
  const auto owner = memory.memory->device;
  const auto granularity = owner == host_device ? page_bytes : m.shape(owner).granularity_minimum;
  if (size % granularity != 0 || !page_aligned(address)) return "address or size breaks the granularity";
  if (overlaps_a_piece(m, address, size)) return "part of the range is mapped already";
  return nullptr;
}

// How many contiguous pieces of one reservation, from `first` on, make up exactly `size`; 0 if none do.
std::size_t pieces_covering(const machine& m, std::map<std::uintptr_t, mapping>::const_iterator first,
                            std::size_t size) {
  const auto end = first->first + size;
  const auto place = first->second.reservation;
  auto at = first->first;
  std::size_t count = 0;
  for (auto it = first; it != m.mappings.end() && it->first == at && at < end; ++it, ++count) {
    if (it->second.reservation != place) return 0;
    at += it->second.bytes;
  }
  return at == end ? count : 0;
}

}  // namespace

hipError_t hipMemMap(void* ptr, std::size_t size, std::size_t offset, hipMemGenericAllocationHandle_t handle,
                     unsigned long long flags) {
  if (!ptr || !handle || size == 0 || offset != 0 || flags != 0) return hipErrorInvalidValue;
  writing m;
  const auto address = address_of(ptr);
  const auto failed = [&](hipError_t code) { return m->quirk("map_failure_hidden") ? hipSuccess : code; };
  const auto found = m->allocations.find(id_of(handle));
  if (found == m->allocations.end())
    return failed(undefined("hipMemMap", hex(id_of(handle)) + " is no handle"));
  if (const char* refusal = map_refusal(*m, address, size, found->second)) {
    note("hipMemMap", std::string(refusal) + " (" + hex(address) + ", " + std::to_string(size) + " bytes)");
    return failed(hipErrorInvalidValue);
  }
  const auto limit = m->profile.mappings_max;
  if (limit != 0 && m->mappings.size() >= limit) return failed(hipErrorOutOfMemory);
  const auto place = containing(m->reservations, address);
  mapping piece;
  piece.bytes = size;
  piece.allocation = id_of(handle);
  piece.reservation = place->first;
  piece.opened = m->is_reached(m->reported_device(piece));
  piece.buffer_id = m->new_buffer_id();
  m->mappings.emplace(address, piece);
  ++place->second.mappings;
  ++found->second.mappings;
  return hipSuccess;
}

hipError_t hipMemUnmap(void* ptr, std::size_t size) {
  if (!ptr || size == 0) return hipErrorInvalidValue;
  writing m;
  const auto first = containing(m->mappings, address_of(ptr));
  if (first == m->mappings.end()) return hipErrorInvalidValue;
  if (first->first != address_of(ptr)) {
    note("hipMemUnmap", hex(address_of(ptr)) + " is inside a piece, not its start");
    if (!m->rules.whole_pieces_only) return hipErrorInvalidValue;  // since 7.0 the size counts from its start
  }
  const auto count = pieces_covering(*m, first, size);
  const bool leaks = count > 1 && m->quirk("unmap_pieces_leaks");
  if (count == 0 && m->quirk("unmap_size_unchecked")) {
    // The defect: the piece stays mapped, but the handle loses the program's reference.
    if (auto& owner = m->allocations.at(first->second.allocation); owner.references > 0) --owner.references;
    return hipSuccess;
  }
  if (count > 1 && !m->rules.whole_pieces_only && !leaks) {
    note("hipMemUnmap", "several pieces in one call do not work before 7.0");
    return hipErrorInvalidValue;
  }
  if (count == 0) return hipErrorInvalidValue;
  m->drop_mappings(first, count, leaks);
  return hipSuccess;
}

hipError_t hipMemMapArrayAsync(hipArrayMapInfo* mapInfoList, unsigned int count, hipStream_t) {
  if (!mapInfoList || count == 0) return hipErrorInvalidValue;
  return hipErrorNotSupported;  // in every release for AMD
}

}  // namespace hipsim::calls
