// The functions that PyTorch calls for a growing pool, two for each slot: hipplan_chunks_malloc_0f3 and
// hipplan_chunks_free_0f3.
//
// PyTorch's CUDAPluggableAllocator takes the names of two functions and passes them no context. A slot keeps
// its pool alive until the pool leaves it.
#pragma once

#include <functional>
#include <memory>
#include <vector>

namespace hipplan {

class growing_pool;

namespace growing_pool_slots {

/// The most growing pools that a process can have at a time.
inline constexpr int count = 1024;

/// Finds a free slot. pool_in: returns the pool that gets the slot with this number. Throws
/// std::runtime_error: all are taken.
void take_one(const std::function<std::shared_ptr<growing_pool>(int)>& pool_in);
void leave(int slot, std::shared_ptr<growing_pool> pool) noexcept;
/// The pools in all slots. Throws std::bad_alloc.
[[nodiscard]] std::vector<std::shared_ptr<growing_pool>> taken();

}  // namespace growing_pool_slots
}  // namespace hipplan
