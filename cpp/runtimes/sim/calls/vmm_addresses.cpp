// hipMemAddressReserve, hipMemAddressFree.
#include "calls/support.hpp"

namespace hipsim::calls {

hipError_t hipMemAddressReserve(void** ptr, std::size_t size, std::size_t alignment, void* addr,
                                unsigned long long flags) {
  if (!ptr || flags != 0) return hipErrorInvalidValue;
  writing m;
  const auto granularity = m->shape(0).granularity_minimum;  // always device 0's
  const bool power_of_two = (alignment & (alignment - 1)) == 0;
  const bool in_granules = alignment % granularity == 0 || !m->rules.reserve_alignment_in_granules;
  if (size == 0 || size % granularity != 0 || !power_of_two || !in_granules) {
    return static_cast<hipError_t>(m->rules.reserve_bad_size_code);
  }
  *ptr = nullptr;
  if (!m->shape(0).vmm) return hipErrorOutOfMemory;  // as on a driver without virtual memory management
  const auto address =
      m->addresses.reserve(size, m->quirk("reserve_ignores_alignment") ? 0 : alignment, address_of(addr));
  if (address == 0) return hipErrorOutOfMemory;
  try {
    m->forget_registered(address, size);
    m->reservations[address].bytes = size;
  } catch (...) {
    m->addresses.release(address, size);
    throw;
  }
  *ptr = pointer_to(address);
  return hipSuccess;
}

hipError_t hipMemAddressFree(void* ptr, std::size_t size) {
  if (!ptr || size == 0) return hipErrorInvalidValue;
  writing m;
  const auto found = containing(m->reservations, address_of(ptr));
  if (found == m->reservations.end() || found->second.forgotten) {
    return undefined("hipMemAddressFree", hex(address_of(ptr)) + " is in no reservation");
  }
  // HIP finds the range by any address in it and ignores the size; the log reports both mistakes.
  if (found->first != address_of(ptr) || found->second.bytes != size) {
    note("hipMemAddressFree", "frees the whole reservation at " + hex(found->first) + " of " +
                                  std::to_string(found->second.bytes) + " bytes, whatever was asked");
  }
  if (found->second.mappings > 0 || found->second.stuck) {
    if (!m->rules.address_free_reports_use || m->quirk("address_free_forgets"))
      found->second.forgotten = true;
    return m->rules.address_free_reports_use ? hipErrorUnknown : hipSuccess;
  }
  m->drop_reservation(found);
  return hipSuccess;
}

}  // namespace hipsim::calls
