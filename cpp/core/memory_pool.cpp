#include "memory_pool.hpp"

#include <array>
#include <stdexcept>

#include "queries.hpp"

namespace hipplan {
namespace {

/// Never destroyed: an allocator that outlives this library frees its last blocks then.
struct slots {
  std::mutex mutex;
  std::array<std::shared_ptr<memory_pool>, pool_slots> taken;
  int next = 0;  ///< in turn: PyTorch may still hold the functions of one that has just become free
};

slots& all_slots() {
  static auto* const all = new slots;
  return *all;
}

std::shared_ptr<memory_pool> pool_in(int slot) noexcept {
  const std::lock_guard lock(all_slots().mutex);
  return all_slots().taken[static_cast<std::size_t>(slot)];
}

template <int Slot>
void* take_from(std::ptrdiff_t size_bytes, int device) noexcept {
  const auto pool = pool_in(Slot);
  return pool && size_bytes > 0 ? pool->take(static_cast<std::size_t>(size_bytes), device) : nullptr;
}

template <int Slot>
void free_in(void* pointer) noexcept {
  if (const auto pool = pool_in(Slot)) pool->free_block(pointer);
}

}  // namespace

std::shared_ptr<memory_pool> memory_pool::create(runtime_ptr runtime, std::string name, device_id device,
                                                 std::uintptr_t address, std::size_t size_bytes,
                                                 std::shared_ptr<lease_book> book) {
  std::shared_ptr<memory_pool> made(
      new memory_pool(std::move(runtime), std::move(name), device, address, size_bytes, std::move(book)));
  const std::lock_guard lock(all_slots().mutex);
  for (int tried = 0; tried < pool_slots; ++tried) {
    const int slot = (all_slots().next + tried) % pool_slots;
    auto& place = all_slots().taken[static_cast<std::size_t>(slot)];
    if (place) continue;
    made->slot_ = slot;
    all_slots().next = slot + 1;
    place = made;
    return made;
  }
  throw std::runtime_error("there are " + std::to_string(pool_slots) + " pools already");
}

void* memory_pool::take(std::size_t size_bytes, int device) noexcept try {
  const std::lock_guard lock(mutex_);
  if (closed_ || device != device_.value) return nullptr;
  const auto offset = room_.take(size_bytes);
  if (!offset) return nullptr;
  try {
    leases_.emplace(*offset, book_->take(name_, address_ + *offset, size_bytes, age_, false));
  } catch (...) {
    room_.free_block(*offset);
    return nullptr;
  }
  return reinterpret_cast<void*>(address_ + *offset);
} catch (...) {
  return nullptr;
}

void memory_pool::free_block(void* pointer) noexcept {
  if (runtime_->may_call()) {
    try {
      synchronize(*runtime_, device_);
    } catch (const std::exception&
                 error) {  // a lost device, or no memory for the error: free the block in any case
      report_leak([&] { return error.what(); });
    }
  }
  {
    const std::lock_guard lock(mutex_);
    const auto offset = reinterpret_cast<std::uintptr_t>(pointer) - address_;
    if (!room_.free_block(offset)) return;
    leases_.erase(offset);
  }
  free_slot_if_done();
}

void memory_pool::renew() noexcept {
  const auto age = book_->age();
  const std::lock_guard lock(mutex_);
  age_ = age;
}

void memory_pool::close() noexcept {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  free_slot_if_done();
}

void memory_pool::free_slot_if_done() noexcept {
  const std::lock_guard slots_lock(all_slots().mutex);
  const std::lock_guard lock(mutex_);
  auto& place = all_slots().taken[static_cast<std::size_t>(slot_)];
  if (closed_ && leases_.empty() && place.get() == this) place.reset();  // the caller holds a reference
}

std::size_t memory_pool::blocks() const {
  const std::lock_guard lock(mutex_);
  return room_.blocks();
}

std::size_t memory_pool::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return room_.used_bytes();
}

std::size_t memory_pool::largest_free_bytes() const {
  const std::lock_guard lock(mutex_);
  return room_.largest_free_bytes();
}

}  // namespace hipplan

// The functions that PyTorch looks up by name, with the parameters of its CUDAPluggableAllocator.
#define HIPPLAN_POOL(slot)                                                                  \
  extern "C" __attribute__((visibility("default"), used)) void* hipplan_pool_malloc_##slot( \
      std::ptrdiff_t size, int device, void*) {                                             \
    return hipplan::take_from<slot>(size, device);                                          \
  }                                                                                         \
  extern "C" __attribute__((visibility("default"), used)) void hipplan_pool_free_##slot(    \
      void* pointer, std::ptrdiff_t, int, void*) {                                          \
    hipplan::free_in<slot>(pointer);                                                        \
  }
HIPPLAN_POOL(0)
HIPPLAN_POOL(1)
HIPPLAN_POOL(2)
HIPPLAN_POOL(3)
HIPPLAN_POOL(4)
HIPPLAN_POOL(5)
HIPPLAN_POOL(6)
HIPPLAN_POOL(7)
HIPPLAN_POOL(8)
HIPPLAN_POOL(9)
HIPPLAN_POOL(10)
HIPPLAN_POOL(11)
HIPPLAN_POOL(12)
HIPPLAN_POOL(13)
HIPPLAN_POOL(14)
HIPPLAN_POOL(15)
