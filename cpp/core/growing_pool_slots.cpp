#include "growing_pool_slots.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "growing_pool.hpp"

namespace hipplan {
namespace {

/// Never destroyed: an allocator that outlives this library frees its last blocks then.
struct growing_slots {
  std::array<std::atomic<std::shared_ptr<growing_pool>>, growing_pool_slots::count> all;
  std::atomic<int> taken{0};
  std::atomic<unsigned> next{0};  ///< in turn: PyTorch may still hold the functions of one that became free
};

growing_slots& growing() {
  static auto* const here = new growing_slots;
  return *here;
}

std::shared_ptr<growing_pool> growing_pool_in(int slot) noexcept {
  return growing().all[static_cast<std::size_t>(slot)].load();
}

void* take_from(int slot, std::ptrdiff_t size_bytes, int device) noexcept {
  const auto pool = growing_pool_in(slot);
  return pool && size_bytes > 0 ? pool->take(static_cast<std::size_t>(size_bytes), device) : nullptr;
}

void free_in(int slot, void* pointer) noexcept {
  if (const auto pool = growing_pool_in(slot)) pool->free_block(pointer);
}

}  // namespace

void growing_pool_slots::take_one(const std::function<std::shared_ptr<growing_pool>(int)>& pool_in) {
  for (int tried = 0; tried < count; ++tried) {
    const auto slot = growing().next++ % static_cast<unsigned>(count);
    std::shared_ptr<growing_pool> none;
    if (growing().all[slot].load()) continue;
    if (!growing().all[slot].compare_exchange_strong(none, pool_in(static_cast<int>(slot)))) continue;
    ++growing().taken;
    return;
  }
  throw std::runtime_error("there are " + std::to_string(count) + " pools with a tag already");
}

void growing_pool_slots::leave(int slot, std::shared_ptr<growing_pool> pool) noexcept {
  if (growing().all[static_cast<std::size_t>(slot)].compare_exchange_strong(pool, nullptr)) --growing().taken;
}

std::vector<std::shared_ptr<growing_pool>> growing_pool_slots::taken() {
  std::vector<std::shared_ptr<growing_pool>> out;
  if (growing().taken == 0) return out;  // mostly: each change of a layout asks
  for (const auto& slot : growing().all) {
    if (auto pool = slot.load()) out.push_back(std::move(pool));
  }
  return out;
}

}  // namespace hipplan

#define HIPPLAN_SLOT(x, y, z)                                                                    \
  extern "C" __attribute__((visibility("default"), used)) void* hipplan_chunks_malloc_##x##y##z( \
      std::ptrdiff_t size, int device, void*) {                                                  \
    return hipplan::take_from(0x##x##y##z, size, device);                                        \
  }                                                                                              \
  extern "C" __attribute__((visibility("default"), used)) void hipplan_chunks_free_##x##y##z(    \
      void* pointer, std::ptrdiff_t, int, void*) {                                               \
    hipplan::free_in(0x##x##y##z, pointer);                                                      \
  }
#define HIPPLAN_16_SLOTS(x, y) \
  HIPPLAN_SLOT(x, y, 0)        \
  HIPPLAN_SLOT(x, y, 1)        \
  HIPPLAN_SLOT(x, y, 2)        \
  HIPPLAN_SLOT(x, y, 3)        \
  HIPPLAN_SLOT(x, y, 4)        \
  HIPPLAN_SLOT(x, y, 5)        \
  HIPPLAN_SLOT(x, y, 6)        \
  HIPPLAN_SLOT(x, y, 7)        \
  HIPPLAN_SLOT(x, y, 8)        \
  HIPPLAN_SLOT(x, y, 9)        \
  HIPPLAN_SLOT(x, y, a)        \
  HIPPLAN_SLOT(x, y, b)        \
  HIPPLAN_SLOT(x, y, c) HIPPLAN_SLOT(x, y, d) HIPPLAN_SLOT(x, y, e) HIPPLAN_SLOT(x, y, f)
#define HIPPLAN_256_SLOTS(x) \
  HIPPLAN_16_SLOTS(x, 0)     \
  HIPPLAN_16_SLOTS(x, 1)     \
  HIPPLAN_16_SLOTS(x, 2)     \
  HIPPLAN_16_SLOTS(x, 3)     \
  HIPPLAN_16_SLOTS(x, 4)     \
  HIPPLAN_16_SLOTS(x, 5)     \
  HIPPLAN_16_SLOTS(x, 6)     \
  HIPPLAN_16_SLOTS(x, 7)     \
  HIPPLAN_16_SLOTS(x, 8)     \
  HIPPLAN_16_SLOTS(x, 9)     \
  HIPPLAN_16_SLOTS(x, a)     \
  HIPPLAN_16_SLOTS(x, b)     \
  HIPPLAN_16_SLOTS(x, c) HIPPLAN_16_SLOTS(x, d) HIPPLAN_16_SLOTS(x, e) HIPPLAN_16_SLOTS(x, f)
HIPPLAN_256_SLOTS(0)
HIPPLAN_256_SLOTS(1)
HIPPLAN_256_SLOTS(2)
HIPPLAN_256_SLOTS(3)
