// Memory of a layout handed out in blocks to somebody else's allocator, through
// plain C functions.
//
// PyTorch's CUDAPluggableAllocator takes the names of two functions and gives
// them no argument of its own, so each pool has a slot with two exported
// functions: hipplan_pool_malloc_N and hipplan_pool_free_N. Each block is a
// lease. No room is a null pointer, which PyTorch turns into its out-of-memory
// error.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>

#include "leases.hpp"
#include "owned.hpp"
#include "suballocator.hpp"

namespace hipplan {

/// How many pools there can be at a time in a process.
inline constexpr int pool_slots = 16;

class memory_pool {
 public:
  /// Takes a slot. Throws std::runtime_error when all are taken.
  [[nodiscard]] static std::shared_ptr<memory_pool> create(runtime_ptr runtime, std::string name,
                                                           device_id device, std::uintptr_t address,
                                                           std::size_t size_bytes,
                                                           std::shared_ptr<lease_book> book);
  [[nodiscard]] int slot() const noexcept { return slot_; }

  /// Null: no room, another device, closed, or the memory is about to be given
  /// back.
  [[nodiscard]] void* take(std::size_t size_bytes, int device) noexcept;
  /// Waits for the device first: as hipFree does, on which the caller relies.
  /// Unknown pointers are ignored.
  void give_back(void* pointer) noexcept;
  /// Its memory was freed and is restored, as after a sleep: blocks can be allocated again.
  void renew() noexcept;
  /// No more blocks; the slot is free again when the last one is back.
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
  std::uint64_t age_;  // of the book when the memory was found
  int slot_ = -1;
  mutable std::mutex mutex_;
  suballocator room_;
  std::unordered_map<std::size_t, lease> leases_;  // by offset
  bool closed_ = false;
};

}  // namespace hipplan
