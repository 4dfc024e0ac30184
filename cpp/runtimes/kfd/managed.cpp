#include "managed.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "log.hpp"
#include "program_memory.hpp"

namespace kfdsim {

namespace {

using range_table = std::map<u64, managed_range>;

bool has(u64 bits, u32 gpu) { return bits >> gpu & 1; }

u64 all_gpus() { return ~0ull >> (64 - machine().gpus.size()); }

// Splits the range that contains `at`, so that one begins there.
void split(range_table* ranges, u64 at) {
  auto range = ranges->upper_bound(at);
  if (range == ranges->begin()) return;
  --range;
  if (range->first == at || range->second.last < at) return;
  const managed_range tail = range->second;
  range->second.last = at - 1;
  (*ranges)[at] = tail;
}

// Adds ranges with default attributes where there are none.
void cover(range_table* ranges, u64 start, u64 last) {
  for (u64 at = start; at <= last;) {
    const auto next = ranges->lower_bound(at);
    const u64 hole_ends = next == ranges->end() || next->first > last ? last : next->first - 1;
    if (next != ranges->end() && next->first == at) {
      at = next->second.last + 1;
      continue;
    }
    managed_range range{};
    range.last = hole_ends;
    if (machine().xnack) range.access = all_gpus();
    (*ranges)[at] = range;
    at = hole_ends + 1;
  }
}

bool may_be_set(const kfd_ioctl_svm_attribute& attribute) {
  switch (attribute.type) {
    case svm_prefetch_location:
      if (attribute.value == svm_location_undefined) return false;
      [[fallthrough]];
    case svm_preferred_location:
      return attribute.value == svm_location_host || attribute.value == svm_location_undefined ||
             gpu_of(attribute.value) >= 0;
    case svm_access:
    case svm_access_in_place:
    case svm_no_access:
      return gpu_of(attribute.value) >= 0;
    default:
      return attribute.type <= svm_granularity;
  }
}

void set(managed_range* range, const kfd_ioctl_svm_attribute& attribute) {
  const u32 value = attribute.value;
  switch (attribute.type) {
    case svm_preferred_location:
      range->preferred = value;
      return;
    case svm_prefetch_location:
      range->prefetched = value;
      return;
    case svm_set_flags:
      range->flags |= value;
      return;
    case svm_clear_flags:
      range->flags &= ~value;
      return;
    case svm_granularity:
      range->granularity = static_cast<u8>(std::min(value, 0x1bu));
      return;
    default:
      break;
  }
  const u64 bit = 1ull << gpu_of(value);
  range->access &= ~bit;
  range->access_in_place &= ~bit;
  if (attribute.type == svm_access) range->access |= bit;
  if (attribute.type == svm_access_in_place) range->access_in_place |= bit;
}

int set_attributes(kfd_ioctl_svm_args* arguments, u64 start, u64 last, const host_range& memory) {
  range_table& ranges = machine().managed;
  const auto* begin = attributes_of(*arguments);
  const auto* end = begin + arguments->nattr;
  if (!std::all_of(begin, end, may_be_set)) return EINVAL;
  if (!memory.present || memory.of_devices) {
    log(1, "%#llx..%#llx %s", static_cast<unsigned long long>(start), static_cast<unsigned long long>(last),
        memory.present ? "is memory of devices" : "is not all there");
    return EFAULT;
  }
  split(&ranges, start);
  split(&ranges, last + 1);
  cover(&ranges, start, last);
  for (auto range = ranges.lower_bound(start); range != ranges.end() && range->first <= last; ++range)
    for (const auto* attribute = begin; attribute != end; ++attribute) set(&range->second, *attribute);
  return 0;
}

// The common attributes of a range: a location if all of it has the same, rights that all of it has.
struct common_attributes {
  u32 preferred = svm_location_undefined, prefetched = svm_location_undefined;
  u64 access = 0, access_in_place = 0;
  u32 flags_of_all, flags_of_any;
  u8 granularity;
};

common_attributes summary(u64 start, u64 last) {
  const range_table& ranges = machine().managed;
  auto range = ranges.upper_bound(start);
  if (range != ranges.begin() && std::prev(range)->second.last >= start) --range;
  const managed_range defaults{};
  common_attributes sum{};
  sum.flags_of_all = sum.flags_of_any = defaults.flags;
  sum.granularity = defaults.granularity;
  if (range == ranges.end() || range->first > last) {
    sum.access = machine().xnack ? all_gpus() : 0;
    return sum;
  }
  const managed_range& first = range->second;
  sum = {first.preferred, first.prefetched, first.access,     first.access_in_place,
         first.flags,     first.flags,      first.granularity};
  for (; range != ranges.end() && range->first <= last; ++range) {
    const managed_range& next_range = range->second;
    if (next_range.preferred != sum.preferred) sum.preferred = svm_location_undefined;
    if (next_range.prefetched != sum.prefetched) sum.prefetched = svm_location_undefined;
    sum.access &= next_range.access;
    sum.access_in_place &= next_range.access_in_place;
    sum.flags_of_all &= next_range.flags;
    sum.flags_of_any |= next_range.flags;
    sum.granularity = std::min(sum.granularity, next_range.granularity);
  }
  return sum;
}

int get_attributes(kfd_ioctl_svm_args* arguments, u64 start, u64 last, const host_range& memory) {
  if (!memory.present || memory.of_devices) return EINVAL;
  for (u32 i = 0; i < arguments->nattr; i++) {
    const u32 type = attributes_of(*arguments)[i].type;
    if (type == svm_access_in_place || type == svm_no_access || type > svm_granularity) return EINVAL;
  }
  const common_attributes sum = summary(start, last);
  for (u32 i = 0; i < arguments->nattr; i++) {
    auto& attribute = attributes_of(*arguments)[i];
    switch (attribute.type) {
      case svm_preferred_location:
        attribute.value = sum.preferred;
        break;
      case svm_prefetch_location:
        attribute.value = sum.prefetched;
        break;
      case svm_set_flags:
        attribute.value = sum.flags_of_all;
        break;
      case svm_clear_flags:
        attribute.value = ~sum.flags_of_any;
        break;
      case svm_granularity:
        attribute.value = sum.granularity;
        break;
      default: {  // svm_access: the result is stored in the type
        const int gpu = gpu_of(attribute.value);
        if (gpu < 0) return EINVAL;
        attribute.type = has(sum.access, gpu)            ? svm_access
                         : has(sum.access_in_place, gpu) ? svm_access_in_place
                                                         : svm_no_access;
      }
    }
  }
  return 0;
}

}  // namespace

u64 managed_bytes(u32 gpu, u64 address, u64 wanted, right needed) {
  const range_table& ranges = machine().managed;
  const auto next = ranges.upper_bound(address);
  const auto range = next == ranges.begin() ? ranges.end() : std::prev(next);
  u64 last = next == ranges.end() ? ~0ull : next->first - 1;
  if (range != ranges.end() && address <= range->second.last) {
    if (!has(range->second.access | range->second.access_in_place, gpu)) return 0;
    last = range->second.last;
  } else if (!machine().xnack) {
    return 0;
  }
  // The GPU has no right that the program has not, whose pages these are.
  const int protection = needed == right::write ? PROT_WRITE : PROT_READ;
  return accessible(address, std::min(wanted - 1, last - address) + 1, protection);
}

int managed_call(kfd_ioctl_svm_args* arguments, u64 bytes) {
  const u64 start = arguments->start_addr, size = arguments->size;
  const u64 attributes_end = sizeof *arguments + arguments->nattr * sizeof(kfd_ioctl_svm_attribute);
  if (!start || !size || (start | size) % page_bytes || start > ~size || attributes_end > bytes)
    return EINVAL;
  const host_range memory = inspect(start, size);
  return arguments->op == svm_op_set ? set_attributes(arguments, start, start + size - 1, memory)
                                     : get_attributes(arguments, start, start + size - 1, memory);
}

void forget_managed(u64 start, u64 size) {
  if (!opened()) return;
  std::lock_guard lock(mutex());
  range_table& ranges = machine().managed;
  const u64 last = start + round_up(size, page_bytes) - 1;
  split(&ranges, start);
  split(&ranges, last + 1);
  ranges.erase(ranges.lower_bound(start), ranges.upper_bound(last));
}

}  // namespace kfdsim
