// A layout's memory as blocks for an allocator outside hipplan, through plain C functions.
//
// PyTorch's CUDAPluggableAllocator takes the names of two functions and passes them no context, so each pool
// has a slot with two exported functions: hipplan_pool_malloc_N and hipplan_pool_free_N. Each block is a
// lease. If there is no room they return null, for which PyTorch raises its out-of-memory error.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>

#include "leases.hpp"
#include "owned.hpp"
#include "suballocator.hpp"

namespace hipplan {

/// The most pools that a process can have at a time.
inline constexpr int pool_slots = 16;

class memory_pool {
 public:
  /// Takes a slot. Throws std::runtime_error when all are taken.
  [[nodiscard]] static std::shared_ptr<memory_pool> create(runtime_ptr runtime, std::string name,
                                                           device_id device, std::uintptr_t address,
                                                           std::size_t size_bytes,
                                                           std::shared_ptr<lease_book> book);
  [[nodiscard]] int slot() const noexcept { return slot_; }

  /// Null: no room, another device, closed, or the memory is about to be freed.
  [[nodiscard]] void* take(std::size_t size_bytes, int device) noexcept;
  /// Waits for the device first: the caller relies on this, because hipFree does it. Ignores unknown
  /// pointers.
  void free_block(void* pointer) noexcept;
  /// For memory that was freed and restored, as by a sleep: blocks can be allocated again.
  void renew() noexcept;
  /// Refuses new blocks; the slot becomes free with the last block.
  void close() noexcept;

  [[nodiscard]] std::size_t blocks() const;
  [[nodiscard]] std::size_t used_bytes() const;
  [[nodiscard]] std::size_t largest_free_bytes() const;

 private:
  memory_pool(runtime_ptr runtime, std::string name, device_id device, std::uintptr_t address,
              std::size_t size_bytes, std::shared_ptr<lease_book> book)
      : runtime_(std::move(runtime)),
        name_(std::move(name)),
        device_(device),
        address_(address),
        book_(std::move(book)),
        age_(book_->age()),
        room_(size_bytes) {}
  void free_slot_if_done() noexcept;

  runtime_ptr runtime_;
  std::string name_;
  device_id device_;
  std::uintptr_t address_;
  std::shared_ptr<lease_book> book_;
  std::uint64_t age_;  // the book's age when the memory was current
  int slot_ = -1;
  mutable std::mutex mutex_;
  suballocator room_;
  std::unordered_map<std::size_t, lease> leases_;  // by offset
  bool closed_ = false;
};

}  // namespace hipplan
