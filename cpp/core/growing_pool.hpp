// A pool for an allocator outside hipplan that takes memory from the driver as blocks are asked for.
//
// A layout owns the range of addresses; the chunks mapped in it belong to the pool, not to the layout's
// snapshot. The pool's mutex protects its table. It is held for no wait: not for a copy, a device or a
// change. A change (sleep, wake, trim, close) stops the pool first, where it moves chunks that blocks are in;
// then take() returns null until the change has ended. free_block() makes no driver call at all, because it
// may run while a graph is captured: a freed block can be taken again once the device has been idle since
// (free_chunks).
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "buffers/pinned.hpp"
#include "freed_behind.hpp"
#include "leases.hpp"
#include "mapping.hpp"
#include "retired.hpp"
#include "snapshot.hpp"
#include "suballocator.hpp"

namespace hipplan {

/// What a pool makes its chunks of.
struct pool_memory {
  std::string name;  ///< of the region
  device_id device;
  std::size_t chunk_bytes = 0;  ///< of a chunk at least; a multiple of step_bytes
  std::size_t step_bytes = 0;   ///< a larger chunk is a multiple of this
  allocation_properties properties;
  std::vector<hip::hipMemAccessDesc> rights;
};

/// A change of the pool that is not possible in its state.
class pool_state_error : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

class growing_pool : public std::enable_shared_from_this<growing_pool> {
 public:
  enum class state { open, stopped, asleep, closed };

  struct usage {
    std::size_t reserved_bytes;  ///< addresses
    std::size_t mapped_bytes;    ///< of all chunks
    std::size_t used_bytes;      ///< of blocks, those included that are freed, but cannot be taken again yet
    std::size_t saved_bytes;     ///< host memory with copies of chunks
    std::size_t chunks;
    std::size_t blocks;
    std::size_t refused;           ///< how often there was no room
    std::size_t all_chunks_bytes;  ///< asleep or not
  };

  /// range: of a snapshot, which has to outlive every chunk. Takes a slot. Throws std::out_of_range (no
  /// range), std::runtime_error (all slots are taken).
  [[nodiscard]] static std::shared_ptr<growing_pool> create(runtime_ptr runtime, const snapshot& in,
                                                            slot_id range, pool_memory memory,
                                                            std::shared_ptr<lease_book> book);
  /// The closed pools whose memory can be freed: tensors lived on when they were closed, and are gone now.
  [[nodiscard]] static std::vector<std::shared_ptr<growing_pool>> left_over();

  growing_pool(const growing_pool&) = delete;
  growing_pool& operator=(const growing_pool&) = delete;

  /// The number of its two functions.
  [[nodiscard]] int slot() const noexcept { return slot_; }
  [[nodiscard]] device_id device() const noexcept { return memory_.device; }

  /// Null: no room, another device, or not open. why_full() says which.
  [[nodiscard]] void* take(std::size_t size_bytes, int device) noexcept;
  /// Makes no driver call. Ignores pointers that are not of a block.
  void free_block(void* pointer) noexcept;

  /// Begins a change: take() returns null until resume(). Throws pool_state_error unless it is open.
  void stop();
  /// Ends a change that did not happen, or that leaves the pool open. Does nothing between the halves of one.
  void resume() noexcept;

  /// Returns a mark for free_chunks(): what is freed before this can be taken again once the device was idle.
  [[nodiscard]] std::uint64_t mark() noexcept;
  /// For a device that was idle since mark(): the freed blocks of before can be taken again, and chunks
  /// without blocks are freed. Failures are added to the report. Throws std::bad_alloc, and loses nothing
  /// then.
  void free_chunks(std::uint64_t mark, undo_report& report);

  // Sleep and wake have two halves, so that several pools change together or not at all (pools_change.hpp).
  // Between the halves the pool is stopped, and nothing else frees its chunks.

  /// Unmaps all chunks of a stopped pool, and keeps their memory until commit(). The device is idle.
  /// keep_bytes: copies them to pinned host memory first; copies that a wake has kept are used again, and
  /// stay. Throws pool_state_error, hip_error; then it is as before, but for a chunk that could not be mapped
  /// again: the report names it, and the pool is asleep, with its bytes still in the device's memory.
  void begin_sleep(bool keep_bytes, undo_report& report);
  /// Maps memory at the same addresses: new memory, to which the bytes are copied back, or that of a sleep
  /// that could not be undone. Throws pool_state_error, hip_error; then it is still asleep.
  void begin_wake(undo_report& report);
  /// Ends what has begun: it is asleep, and its memory is freed, or it is open. retain: a wake keeps the
  /// copies for the next sleep; otherwise they are freed behind the caller, and what fails then is in a later
  /// report. The report names memory that could not be released.
  void commit(bool retain, undo_report& report) noexcept;
  /// Takes back what has begun: it is stopped, with its bytes, or asleep. What begin_sleep() says of a chunk
  /// that cannot be mapped holds here, too; a chunk that cannot be unmapped stays mapped until the next wake.
  void undo(undo_report& report) noexcept;

  /// Where host memory has a copy of bytes of a block: of a pool that sleeps, or that woke with retain. 0:
  /// there is no copy, or the block is younger. Waits for a change. A copy with a lease is not freed.
  [[nodiscard]] std::uintptr_t copy_of(std::uintptr_t address, std::size_t size_bytes) const;

  /// Gives out nothing any more. Chunks stay until their blocks are freed; free_chunks() frees them then.
  /// With unmaps, all memory is freed now, so that stale pointers fault.
  void close(bool unmaps, undo_report& report);

  /// For a layout that is dropped: closes it, waits for the device and frees what can be freed. Failures go
  /// to the leak log.
  void abandon() noexcept;

  [[nodiscard]] state current_state() const;
  [[nodiscard]] usage used() const;
  /// Why take() returned null last; empty: it never did.
  [[nodiscard]] std::string why_full() const;

 private:
  struct piece {
    allocation memory;
    mapping place;
  };
  struct chunk {
    std::size_t size_bytes;
    suballocator room;
    std::vector<piece> pieces;  ///< empty while it sleeps, unless the device's memory still has its bytes
    std::unique_ptr<pinned_buffer> copy;
    std::optional<std::uint64_t> copied_at{};  ///< the mark when all of `copy` was written
  };
  using chunk_map = std::map<std::size_t, chunk>;  // by offset
  struct block {
    lease held;
    std::size_t chunk;  ///< its offset
    std::size_t size_bytes;
    std::uint64_t taken_at;                   ///< the mark that comes after
    std::optional<std::uint64_t> freed_at{};  ///< likewise
  };

  /// The first half of a sleep or a wake.
  struct begun {
    bool is_sleep;
    bool keeps_bytes;
    std::shared_ptr<freed_behind> behind;  ///< with room for all copies
    std::vector<chunk*> made;              ///< those that have got copies, or memory
  };

  growing_pool(runtime_ptr runtime, const snapshot& in, slot_id range, pool_memory memory,
               std::shared_ptr<lease_book> book);
  [[nodiscard]] chunk* chunk_with_room(std::size_t size_bytes, std::size_t& offset) noexcept;
  [[nodiscard]] chunk* add_chunk(std::size_t size_bytes, std::size_t& offset);
  std::nullptr_t refuse(std::string why);
  [[nodiscard]] std::vector<piece> made(std::size_t offset, std::size_t size_bytes) const;
  void settle(std::uint64_t mark) noexcept;
  void free_chunk(std::size_t offset, chunk& what, undo_report& report);
  void save(std::vector<chunk*>& made);
  void unmap(chunk& what);
  void map_again(undo_report& report) noexcept;
  void free_woken(const std::vector<chunk*>& woken, undo_report& report) noexcept;
  [[nodiscard]] std::optional<begun> take_begun() noexcept;
  [[nodiscard]] std::size_t bytes_of_mapped() const noexcept;
  [[nodiscard]] std::size_t bytes_of_copies() const noexcept;
  [[nodiscard]] bool has_viewed_copy(const chunk& what) const noexcept;
  [[nodiscard]] std::shared_ptr<freed_behind> room_for_copies();
  void free_copies(const std::shared_ptr<freed_behind>& behind) noexcept;
  void free_copies_of(const std::vector<chunk*>& some, const std::shared_ptr<freed_behind>& behind) noexcept;
  void take_copy(chunk& of, freed_behind& to) noexcept;
  void begin_to_free(const std::shared_ptr<freed_behind>& behind) noexcept;
  void report_behind(undo_report& report);
  void wait_behind(undo_report& report);
  void leave_slot_if_done() noexcept;
  void require(state wanted, const char* what) const;
  [[nodiscard]] bool is_left_over() const;
  [[nodiscard]] bool in_forked_child() const noexcept { return !runtime_->may_call(); }

  const runtime_ptr runtime_;
  const pool_memory memory_;
  const range_place range_;
  const std::shared_ptr<lease_book> book_;
  const std::uint64_t age_;
  int slot_ = -1;

  mutable std::mutex change_;  ///< one change at a time; before mutex_
  mutable std::mutex mutex_;
  state state_ = state::open;
  suballocator addresses_;
  chunk_map chunks_;
  std::map<std::size_t, block> blocks_;  // by offset
  std::vector<std::shared_ptr<freed_behind>> behind_;
  std::optional<begun> begun_;
  std::uint64_t mark_ = 0;
  bool unmapped_ = false;  ///< for good: close() has unmapped everything
  std::size_t mapped_bytes_ = 0;
  std::size_t saved_bytes_ = 0;
  std::size_t refused_ = 0;
  std::string why_full_;
};

}  // namespace hipplan
