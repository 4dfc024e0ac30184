// Addresses for simulated memory: PROT_NONE ranges of this process.
//
// Small ranges come from arenas, so they cost no system call and no kernel mapping each (the kernel allows
// 65,530 per process); large and hinted ones are mapped by themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace hipsim {

inline constexpr std::uint64_t page_bytes = 4096;

[[nodiscard]] constexpr std::uint64_t page_ceiling(std::uint64_t bytes) {
  return (bytes + page_bytes - 1) & ~(page_bytes - 1);
}

class address_space {
 public:
  /// free_blocks_first: quirk of that name.
  explicit address_space(bool free_blocks_first) : free_blocks_first_(free_blocks_first) {}
  ~address_space();
  address_space(const address_space&) = delete;
  address_space& operator=(const address_space&) = delete;

  /// An inaccessible range of `bytes` (a multiple of the page), at `hint` if that is free, aligned to
  /// `alignment` (0 or a power of two). 0: no address space left.
  [[nodiscard]] std::uintptr_t reserve(std::uint64_t bytes, std::uint64_t alignment, std::uintptr_t hint);
  /// Frees a range of reserve(), which must be inaccessible again.
  void release(std::uintptr_t address, std::uint64_t bytes);
  /// Whether part of the range (which must not wrap around) belongs to this address space, reserved or free.
  [[nodiscard]] bool overlaps(std::uintptr_t address, std::uint64_t bytes) const;

 private:
  /// Made before anything changes; taking them over needs no memory.
  struct free_ranges {
    void add(std::uintptr_t address, std::uint64_t bytes);
    std::map<std::uintptr_t, std::uint64_t> by_address;
    std::set<std::pair<std::uint64_t, std::uintptr_t>> by_size;
  };

  [[nodiscard]] std::uintptr_t from_free(std::uint64_t bytes, std::uint64_t alignment);
  [[nodiscard]] std::uintptr_t from_arena(std::uint64_t bytes, std::uint64_t alignment);
  [[nodiscard]] std::uintptr_t at_hint(std::uint64_t bytes, std::uintptr_t hint);
  [[nodiscard]] std::uintptr_t at_next_step(std::uint64_t bytes, std::uintptr_t hint);
  [[nodiscard]] bool joins_before(std::uintptr_t address) const;
  void unmap_if_free(std::uintptr_t address);
  [[nodiscard]] bool add_arena();
  void keep_arena(std::uintptr_t arena, std::uint64_t bytes);
  [[nodiscard]] bool carve_at(std::uintptr_t hint, std::uint64_t bytes);
  [[nodiscard]] bool map_at(std::uintptr_t hint, std::uint64_t bytes);
  [[nodiscard]] std::uintptr_t by_itself(std::uint64_t bytes, std::uint64_t alignment);
  void add_free(std::uintptr_t address, std::uint64_t bytes);
  void remove_free(std::map<std::uintptr_t, std::uint64_t>::iterator range);
  void take_over(free_ranges& ranges);
  void carve(std::map<std::uintptr_t, std::uint64_t>::iterator range, std::uintptr_t address,
             std::uint64_t bytes);

  const bool free_blocks_first_;
  std::map<std::uintptr_t, std::uint64_t> arenas_;
  std::set<std::uintptr_t> hinted_;                                  // arenas that were made at a hint
  std::map<std::uintptr_t, std::uint64_t> free_;                     // inside arenas, by address, coalesced
  std::set<std::pair<std::uint64_t, std::uintptr_t>> free_by_size_;  // the same, for best fit
  std::map<std::uintptr_t, std::uint64_t> singles_;                  // mapped by themselves
};

/// Maps memory that the CPU and all devices see, for pinned and managed memory. Whole pages; 0: out of
/// memory.
[[nodiscard]] std::uintptr_t host_pages(std::uint64_t bytes);

/// Maps a memory file into part of a reserved range, for the CPU (rights: PROT_READ and PROT_WRITE bits).
/// Throws std::bad_alloc if the kernel allows no more mappings.
void show_to_cpu(std::uintptr_t address, std::uint64_t bytes, int rights, int descriptor,
                 std::uint64_t offset);
/// Makes it inaccessible again. Returns false, and leaves it unchanged, if the kernel refuses.
[[nodiscard]] bool hide_from_cpu(std::uintptr_t address, std::uint64_t bytes) noexcept;

}  // namespace hipsim
