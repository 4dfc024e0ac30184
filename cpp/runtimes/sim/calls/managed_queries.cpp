// hipMemRangeGetAttribute(s): the state of a managed range after advice and prefetch.
#include <cstddef>
#include <cstring>

#include "access.hpp"
#include "calls/support.hpp"

namespace hipsim::calls {
namespace {

struct managed_range {
  const block* owner;
  std::uint64_t from;
  std::uint64_t to;

  template <class Visit>
  void visit(Visit each) const {
    owner->managed.visit(from, to, each);
  }
};

bool read_mostly(const managed_range& range) {
  bool all = true;
  range.visit([&](const managed_state& state) { all = all && state.read_mostly; });
  return all;
}

// The location that the whole range has in common, else none.
int common_location(const managed_range& range, int managed_state::*field) {
  int common = no_location;
  bool first = true;
  range.visit([&](const managed_state& state) {
    if (first)
      common = state.*field;
    else if (state.*field != common)
      common = no_location;
    first = false;
  });
  return common;
}

void fill_accessed_by(const managed_range& range, void* data, std::size_t slots) {
  auto everywhere = ~std::uint64_t{0};
  range.visit([&](const managed_state& state) { everywhere &= state.accessed_by; });
  auto* out = static_cast<std::byte*>(data);
  int device = 0;
  for (std::size_t slot = 0; slot < slots; ++slot) {
    while (device < 64 && (everywhere >> device & 1) == 0) ++device;
    const int value = device < 64 ? device++ : no_location;
    std::memcpy(out + slot * sizeof value, &value, sizeof value);
  }
}

// 0 fine, 1 coarse, 2 both.
int coherency(const managed_range& range) {
  bool fine = false;
  bool coarse = false;
  range.visit([&](const managed_state& state) { (state.coarse_grain ? coarse : fine) = true; });
  return fine && coarse ? 2 : coarse ? 1 : 0;
}

void write_int(void* data, int value) { std::memcpy(data, &value, sizeof value); }

// Memory that is not managed has only one attribute, its coherency: coarse on devices, fine on the host.
hipError_t get_of_ordinary(const machine& m, void* data, hipMemRangeAttribute attribute,
                           std::uintptr_t address) {
  const auto found = containing(m.blocks, address);
  if (attribute != hipMemRangeAttributeCoherencyMode || found == m.blocks.end()) return hipErrorInvalidValue;
  write_int(data, found->second.kind == block_kind::device ? 1 : 0);
  return hipSuccess;
}

bool right_size(std::size_t size, hipMemRangeAttribute attribute) {
  return attribute == hipMemRangeAttributeAccessedBy ? size % sizeof(int) == 0 : size == sizeof(int);
}

hipError_t get(const machine& m, void* data, std::size_t size, hipMemRangeAttribute attribute,
               const void* ptr, std::size_t count) {
  if (!data || size == 0 || !ptr || count == 0 || !right_size(size, attribute)) return hipErrorInvalidValue;
  const auto address = address_of(ptr);
  if (count > room_at(m, address) || wraps(address_of(data), size)) return hipErrorInvalidValue;
  const auto found = containing(m.blocks, address);
  const bool managed = found != m.blocks.end() && found->second.kind == block_kind::managed;
  if (!managed || !m.has_hmm()) return get_of_ordinary(m, data, attribute, address);
  const auto into = address - found->first;
  const managed_range range{&found->second, into & ~(page_bytes - 1), page_ceiling(into + count)};
  switch (attribute) {
    case hipMemRangeAttributeReadMostly:
      write_int(data, read_mostly(range));
      return hipSuccess;
    case hipMemRangeAttributePreferredLocation:
      write_int(data, common_location(range, &managed_state::preferred));
      return hipSuccess;
    case hipMemRangeAttributeLastPrefetchLocation:
      write_int(data, common_location(range, &managed_state::last_prefetch));
      return hipSuccess;
    case hipMemRangeAttributeAccessedBy:
      fill_accessed_by(range, data, size / sizeof(int));
      return hipSuccess;
    case hipMemRangeAttributeCoherencyMode:
      write_int(data, coherency(range));
      return hipSuccess;
  }
  return hipErrorInvalidValue;
}

}  // namespace

hipError_t hipMemRangeGetAttribute(void* data, std::size_t dataSize, hipMemRangeAttribute attribute,
                                   const void* ptr, std::size_t count) {
  return get(*reading(), data, dataSize, attribute, ptr, count);
}

hipError_t hipMemRangeGetAttributes(void** data, std::size_t* dataSizes, hipMemRangeAttribute* attributes,
                                    std::size_t numAttributes, const void* ptr, std::size_t count) {
  if (!data || !dataSizes || !attributes || numAttributes == 0 || !ptr || count == 0)
    return hipErrorInvalidValue;
  const reading m;
  const auto found = containing(m->blocks, address_of(ptr));
  if (found == m->blocks.end() || found->second.kind == block_kind::device) return hipErrorInvalidValue;
  for (std::size_t i = 0; i < numAttributes; ++i) {
    if (!data[i]) return hipErrorInvalidValue;
  }
  if (dataSizes[0] > numAttributes)
    note("hipMemRangeGetAttributes",
         "the real library reads as many pointers as the first size says, past the array, and "
         "returns InvalidValue where one is null");
  for (std::size_t i = 0; i < numAttributes; ++i) {
    const auto code = get(*m, data[i], dataSizes[i], attributes[i], ptr, count);
    if (code != hipSuccess) return code;
  }
  return hipSuccess;
}

}  // namespace hipsim::calls
