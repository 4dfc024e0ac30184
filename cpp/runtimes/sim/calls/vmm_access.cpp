// hipMemSetAccess, hipMemGetAccess.
#include "calls/support.hpp"

namespace hipsim::calls {
namespace {

using piece_iterator = std::map<std::uintptr_t, mapping>::iterator;

bool known_flags(unsigned int flags) { return flags == 0 || flags == 1 || flags == 3; }

// The mappings in [address, address + size), as [first, last); empty if this release refuses the range.
struct piece_range {
  piece_iterator first;
  piece_iterator last;
  [[nodiscard]] bool empty() const { return first == last; }
};

// The mappings from a piece on, in its reservation and without a hole, up to the one that reaches `size`.
struct stretch {
  std::uint64_t bytes = 0;
  piece_iterator last;  ///< past the end
};

stretch stretch_from(machine& m, piece_iterator first, std::size_t size) {
  stretch out{0, first};
  const auto place = first->second.reservation;
  auto end = first->first;
  while (out.last != m.mappings.end() && out.last->first == end && out.last->second.reservation == place &&
         out.bytes < size) {
    out.bytes += out.last->second.bytes;
    end += out.last->second.bytes;
    ++out.last;
  }
  return out;
}

// HIP 7.0 to 7.2 add up the sizes of all of the reservation's pieces, in the order of heap addresses, until
// the sum is `size` or more. The order is unpredictable, so a size is accepted only if every order works.
// That holds for the sum of all pieces, and for multiples of the piece size if all pieces have the same size.
bool met_in_every_order(const machine& m, const mapping& piece, std::size_t size) {
  std::size_t sum = 0;
  bool alike = true;
  const auto place = piece.reservation;
  for (auto it = m.mappings.lower_bound(place); it != m.mappings.end() && it->second.reservation == place;
       ++it) {
    sum += it->second.bytes;
    alike = alike && it->second.bytes == piece.bytes;
  }
  return size == sum || (alike && size % piece.bytes == 0);
}

piece_range pieces_at(machine& m, std::uintptr_t address, std::size_t size) {
  const auto none = piece_range{m.mappings.end(), m.mappings.end()};
  const auto first = m.mappings.find(address);
  if (first == m.mappings.end()) return none;
  const auto named = stretch_from(m, first, size);
  if (named.bytes < size) return none;  // ROCr's rule, independent of HIP's sum
  if (m.quirk("set_access_sums_in_heap_order") && !met_in_every_order(m, first->second, size)) return none;
  // Before 7.0 the last piece may extend beyond the size: all of it changes.
  const bool covered = m.rules.whole_pieces_only ? named.bytes == size : named.bytes >= size;
  return covered ? piece_range{first, named.last} : none;
}

void set_bit(std::uint64_t& word, int device, bool on) {
  const auto bit = std::uint64_t{1} << device;
  word = on ? word | bit : word & ~bit;
}

// A device may get access to its own memory, to host memory, and to that of linked devices.
bool reachable(const machine& m, int device, const mapping& piece) {
  const int owner = m.memory_of(piece).device;
  return owner == host_device || owner == device || m.profile.linked(device, owner);
}

// Whether the descriptor of an import is still open, if the driver needs it.
bool has_its_descriptor(const machine& m, const mapping& piece) {
  const auto& handle = m.allocations.at(piece.allocation);
  return !handle.imported || !m.quirk("import_needs_descriptor") ||
         handle.memory->memory.file()->is_behind(handle.descriptor);
}

bool host_may_have_access(const machine& m, const mapping& piece) {
  if (m.allocations.at(piece.allocation).imported && m.quirk("host_access_to_imports_fails")) return false;
  return m.memory_of(piece).device == host_device || m.rules.host_access_to_device_memory;
}

hipError_t grant_to_host(machine& m, piece_range range, unsigned int flags) {
  for (auto it = range.first; it != range.last; ++it) {
    if (!host_may_have_access(m, it->second)) return hipErrorInvalidValue;
  }
  for (auto it = range.first; it != range.last; ++it) {
    auto changed = it->second;  // stored only after update_cpu_view succeeds
    changed.host_may_read = flags != 0;
    changed.host_may_write = flags == hipMemAccessFlagsProtReadWrite;
    m.update_cpu_view(it->first, changed);
    it->second = changed;
  }
  return hipSuccess;
}

hipError_t grant_to_device(machine& m, piece_range range, int device, unsigned int flags) {
  for (auto it = range.first; it != range.last; ++it) {
    if (!reachable(m, device, it->second)) {
      note("hipMemSetAccess", "device " + std::to_string(device) + " has no link to device " +
                                  std::to_string(m.memory_of(it->second).device));
      return hipErrorInvalidValue;
    }
  }
  for (auto it = range.first; it != range.last; ++it) {
    auto changed = it->second;
    if (m.quirk("set_access_takes_others_away")) changed.readers = changed.writers = 0;
    set_bit(changed.readers, device, flags != 0);
    set_bit(changed.writers, device, flags == hipMemAccessFlagsProtReadWrite);
    m.update_cpu_view(it->first, changed);
    it->second = changed;
  }
  return hipSuccess;
}

hipError_t apply(machine& m, piece_range range, const hipMemAccessDesc& desc) {
  if (!known_flags(desc.flags)) return hipErrorInvalidValue;
  // 6.x treats every location as a device, whatever its type.
  const bool types_count = m.rules.whole_pieces_only;
  if (types_count && desc.location.type != hipMemLocationTypeDevice) {
    const bool numa = desc.location.type == hipMemLocationTypeHostNuma ||
                      desc.location.type == hipMemLocationTypeHostNumaCurrent;
    // The id of the host is checked like a device's, as in hipMemCreate.
    const bool valid = desc.location.type == hipMemLocationTypeHost
                           ? m.rules.host_location && m.is_device(desc.location.id)
                           : numa && m.rules.numa_locations;
    return valid ? grant_to_host(m, range, desc.flags) : hipErrorInvalidValue;
  }
  if (!m.is_device(desc.location.id)) return hipErrorInvalidValue;
  return grant_to_device(m, range, desc.location.id, desc.flags);
}

}  // namespace

hipError_t hipMemSetAccess(void* ptr, std::size_t size, const hipMemAccessDesc* desc, std::size_t count) {
  if (!ptr || size == 0 || !desc || count == 0) return hipErrorInvalidValue;
  writing m;
  const auto range = pieces_at(*m, address_of(ptr), size);
  if (range.empty()) return hipErrorInvalidValue;
  for (auto piece = range.first; piece != range.last; ++piece) {
    if (has_its_descriptor(*m, piece->second)) continue;
    note("hipMemSetAccess", "the descriptor of the import was closed");
    return hipErrorInvalidValue;
  }
  // One after another: those before an invalid one stay applied.
  for (std::size_t i = 0; i < count; ++i) {
    if (const auto code = apply(*m, range, desc[i]); code != hipSuccess) return code;
  }
  return hipSuccess;
}

hipError_t hipMemGetAccess(unsigned long long* flags, const hipMemLocation* location, void* ptr) {
  if (!flags || !location || !ptr) return hipErrorInvalidValue;
  const reading m;
  if (location->type != hipMemLocationTypeDevice || !m->is_device(location->id)) return hipErrorInvalidValue;
  const auto piece = containing(m->mappings, address_of(ptr));
  if (piece == m->mappings.end()) {
    const auto found = containing(m->blocks, address_of(ptr));
    if (found == m->blocks.end() || !found->second.pooled || !m->rules.keeps_only_errors)
      return hipErrorInvalidValue;
    const bool owner = found->second.device == location->id;
    *flags = owner ? hipMemAccessFlagsProtReadWrite : hipMemAccessFlagsProtNone;
    return hipSuccess;
  }
  const bool reads = (piece->second.readers >> location->id & 1) != 0;
  const bool writes = (piece->second.writers >> location->id & 1) != 0;
  *flags = writes  ? hipMemAccessFlagsProtReadWrite
           : reads ? hipMemAccessFlagsProtRead
                   : hipMemAccessFlagsProtNone;
  return hipSuccess;
}

}  // namespace hipsim::calls
