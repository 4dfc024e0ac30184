#include "address_space.hpp"

#include <sys/mman.h>

#include <new>

namespace hipsim {
namespace {

constexpr std::uint64_t arena_bytes = std::uint64_t{64} << 30;
/// What CUDA's context begins with, and gets where no address is asked for.
constexpr std::uint64_t cuda_arena_bytes = std::uint64_t{512} << 20;
/// CUDA gets addresses at, and in, multiples of this, where an address is asked for.
constexpr std::uint64_t cuda_step_bytes = std::uint64_t{32} << 20;
constexpr std::uint64_t single_bytes_min = std::uint64_t{1} << 30;

#ifdef __SANITIZE_THREAD__
// ThreadSanitizer replaces hints that it does not allow by address 0, which this flag would then demand.
constexpr int only_if_free = 0;
#else
constexpr int only_if_free = MAP_FIXED_NOREPLACE;
#endif

std::uintptr_t map_nothing(std::uintptr_t where, std::uint64_t bytes, int extra_flags) {
  void* const got = mmap(reinterpret_cast<void*>(where), bytes, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | extra_flags, -1, 0);
  return got == MAP_FAILED ? 0 : reinterpret_cast<std::uintptr_t>(got);
}

void unmap(std::uintptr_t address, std::uint64_t bytes) { munmap(reinterpret_cast<void*>(address), bytes); }

/// Adds what is mapped to a table. Throws std::bad_alloc, and unmaps it then.
void keep(std::map<std::uintptr_t, std::uint64_t>& table, std::uintptr_t address, std::uint64_t bytes) {
  try {
    table.emplace(address, bytes);
  } catch (...) {
    unmap(address, bytes);
    throw;
  }
}

std::uintptr_t aligned_up(std::uintptr_t address, std::uint64_t alignment) {
  return (address + alignment - 1) & ~(alignment - 1);
}

}  // namespace

address_space::~address_space() {
  for (const auto* ranges : {&arenas_, &singles_}) {
    for (const auto& [address, bytes] : *ranges) unmap(address, bytes);
  }
}

std::uintptr_t address_space::reserve(std::uint64_t bytes, std::uint64_t alignment, std::uintptr_t hint) {
  if (alignment < page_bytes) alignment = page_bytes;
  if (bytes == 0 || bytes + alignment < bytes) return 0;
  if (free_blocks_first_) {
    if (arenas_.empty()) (void)add_arena();  // CUDA's context has one
    if (const auto address = from_free(bytes, alignment)) return address;
  }
  if (hint != 0 && hint % alignment == 0) {
    if (const auto address = at_hint(bytes, hint)) return address;
  }
  const auto single_bytes = free_blocks_first_ ? cuda_arena_bytes : single_bytes_min;
  if (bytes < single_bytes && alignment < single_bytes) {
    if (const auto address = from_arena(bytes, alignment)) return address;
  }
  return by_itself(bytes, alignment);
}

void address_space::release(std::uintptr_t address, std::uint64_t bytes) {
  const auto single = singles_.find(address);
  if (single != singles_.end() && !free_blocks_first_) {
    singles_.erase(single);
    unmap(address, bytes);
    return;
  }
  try {
    if (single != singles_.end()) arenas_.insert(singles_.extract(single));
    add_free(address, bytes);
  } catch (const std::bad_alloc&) {
    return;  // these addresses are lost; there are plenty
  }
  if (!hinted_.empty()) unmap_if_free(address);
}

/// Gives an arena that was made at a hint back to the kernel, once all of it is free.
void address_space::unmap_if_free(std::uintptr_t address) {
  const auto arena = std::prev(arenas_.upper_bound(address));
  const auto free = free_.find(arena->first);
  if (!hinted_.contains(arena->first) || free == free_.end() || free->second != arena->second) return;
  remove_free(free);
  hinted_.erase(arena->first);
  unmap(arena->first, arena->second);
  arenas_.erase(arena);
}

bool address_space::overlaps(std::uintptr_t address, std::uint64_t bytes) const {
  for (const auto* ranges : {&arenas_, &singles_}) {
    const auto behind = ranges->lower_bound(address + bytes);
    if (behind == ranges->begin()) continue;
    const auto& [start, length] = *std::prev(behind);
    if (start + length > address) return true;
  }
  return false;
}

std::uintptr_t address_space::from_free(std::uint64_t bytes, std::uint64_t alignment) {
  const std::uint64_t enough =
      bytes + (alignment - page_bytes);  // contains an aligned part, wherever it starts
  const auto fit = free_by_size_.lower_bound({enough, 0});
  if (fit == free_by_size_.end()) return 0;
  const std::uintptr_t start = aligned_up(fit->second, alignment);
  carve(free_.find(fit->second), start, bytes);
  return start;
}

std::uintptr_t address_space::from_arena(std::uint64_t bytes, std::uint64_t alignment) {
  if (const auto address = from_free(bytes, alignment)) return address;
  if (!add_arena()) return 0;
  return from_free(bytes, alignment);
}

bool address_space::add_arena() {
  std::uint64_t grow = free_blocks_first_ ? cuda_arena_bytes : arena_bytes;
  std::uintptr_t arena = map_nothing(0, grow, 0);
  if (arena == 0) arena = map_nothing(0, grow = 2 * single_bytes_min, 0);  // under a limit on address space
  if (arena == 0) return false;
  keep_arena(arena, grow);
  return true;
}

void address_space::keep_arena(std::uintptr_t arena, std::uint64_t bytes) {
  keep(arenas_, arena, bytes);
  try {
    add_free(arena, bytes);
  } catch (...) {
    arenas_.erase(arena);
    unmap(arena, bytes);
    throw;
  }
}

std::uintptr_t address_space::at_hint(std::uint64_t bytes, std::uintptr_t hint) {
  if (free_blocks_first_) return at_next_step(bytes, hint);
  if (carve_at(hint, bytes)) return hint;
  if (!map_at(hint, bytes)) return 0;
  keep(singles_, hint, bytes);
  return hint;
}

/// CUDA's rule: the range begins at the next multiple of the step, in an arena of whole steps.
std::uintptr_t address_space::at_next_step(std::uint64_t bytes, std::uintptr_t hint) {
  const auto begin = aligned_up(hint, cuda_step_bytes);
  const auto whole_bytes = aligned_up(bytes, cuda_step_bytes);
  if (begin < hint || whole_bytes < bytes || !map_at(begin, whole_bytes)) return 0;
  keep_arena(begin, whole_bytes);
  try {
    hinted_.insert(begin);
    return carve_at(begin, bytes) ? begin : 0;
  } catch (...) {
    remove_free(free_.find(begin));
    hinted_.erase(begin);
    arenas_.erase(begin);
    unmap(begin, whole_bytes);
    throw;
  }
}

/// Takes exactly these addresses, if all of them are free inside an arena.
bool address_space::carve_at(std::uintptr_t hint, std::uint64_t bytes) {
  auto range = free_.upper_bound(hint);
  if (range == free_.begin()) return false;
  --range;
  const auto into = hint - range->first;  // only subtractions: a hint may have any value
  if (into >= range->second || bytes > range->second - into) return false;
  carve(range, hint, bytes);
  return true;
}

/// Maps exactly there, if it is free.
bool address_space::map_at(std::uintptr_t hint, std::uint64_t bytes) {
  const auto got = map_nothing(hint, bytes, only_if_free);
  if (got == hint) return true;
  // Without the flag, or before Linux 4.17, the address is only a hint.
  if (got != 0) unmap(got, bytes);
  return false;
}

std::uintptr_t address_space::by_itself(std::uint64_t bytes, std::uint64_t alignment) {
  const std::uint64_t slack = alignment - page_bytes;
  const auto got = map_nothing(0, bytes + slack, 0);
  if (got == 0) return 0;
  const auto start = aligned_up(got, alignment);
  if (start > got) unmap(got, start - got);
  if (const auto tail = got + slack - start; tail > 0) unmap(start + bytes, tail);
  keep(singles_, start, bytes);
  return start;
}

/// Throws std::bad_alloc, and leaves all as it is then.
void address_space::add_free(std::uintptr_t address, std::uint64_t bytes) {
  const auto next = free_.lower_bound(address);
  const auto previous = next == free_.begin() ? free_.end() : std::prev(next);
  const bool joins_next = next != free_.end() && address + bytes == next->first && joins_before(next->first);
  const bool joins_previous =
      previous != free_.end() && previous->first + previous->second == address && joins_before(address);
  if (joins_next) bytes += next->second;
  if (joins_previous) {
    address = previous->first;
    bytes += previous->second;
  }
  free_ranges fresh;
  fresh.add(address, bytes);
  if (joins_next) remove_free(next);
  if (joins_previous) remove_free(previous);
  take_over(fresh);
}

/// Whether free addresses on both sides of an address become one block: CUDA joins no arena with another.
bool address_space::joins_before(std::uintptr_t address) const {
  return !free_blocks_first_ || !arenas_.contains(address);
}

void address_space::remove_free(std::map<std::uintptr_t, std::uint64_t>::iterator range) {
  free_by_size_.erase({range->second, range->first});
  free_.erase(range);
}

/// Throws std::bad_alloc, and leaves all as it is then.
void address_space::carve(std::map<std::uintptr_t, std::uint64_t>::iterator range, std::uintptr_t address,
                          std::uint64_t bytes) {
  const auto [start, length] = *range;
  free_ranges around;
  if (address > start) around.add(start, address - start);
  if (const auto end = start + length; address + bytes < end) {
    around.add(address + bytes, end - address - bytes);
  }
  remove_free(range);
  take_over(around);
}

void address_space::free_ranges::add(std::uintptr_t address, std::uint64_t bytes) {
  by_address.emplace(address, bytes);
  by_size.emplace(bytes, address);
}

void address_space::take_over(free_ranges& ranges) {
  free_.merge(ranges.by_address);
  free_by_size_.merge(ranges.by_size);
}

std::uintptr_t host_pages(std::uint64_t bytes) {
  void* const got =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return got == MAP_FAILED ? 0 : reinterpret_cast<std::uintptr_t>(got);
}

void show_to_cpu(std::uintptr_t address, std::uint64_t bytes, int rights, int descriptor,
                 std::uint64_t offset) {
  void* const where = reinterpret_cast<void*>(address);
  if (mmap(where, bytes, rights, MAP_SHARED | MAP_FIXED, descriptor, static_cast<off_t>(offset)) ==
      MAP_FAILED) {
    throw std::bad_alloc();
  }
  // As the GPU driver does: a forked child has no device memory, so it cannot write its parent's.
  (void)madvise(where, bytes, MADV_DONTFORK);
}

bool hide_from_cpu(std::uintptr_t address, std::uint64_t bytes) noexcept {
  if (map_nothing(address, bytes, MAP_FIXED) != 0) return true;
  return mprotect(reinterpret_cast<void*>(address), bytes, PROT_NONE) == 0;  // needs no new mapping
}

}  // namespace hipsim
