// Host memory for large pinned buffers. One thread of the driver takes seconds to touch the pages of 8 GiB,
// because each is a page fault; here huge pages and many threads do it, and then the driver registers the
// memory.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>

namespace hipcuda {

/// Fresh memory whose pages exist, of the calling thread's memory policy; null if the system has none.
[[nodiscard]] void* map_touched_pages(std::size_t size_bytes) noexcept;
void unmap_pages(void* address, std::size_t size_bytes) noexcept;

/// The pinned memory that was made so.
class pinned_pages {
 public:
  struct block {
    void* address;
    std::size_t size_bytes;
    unsigned int flags;  ///< of hipHostMalloc
  };

  /// Whether a buffer is large enough for this to be faster.
  [[nodiscard]] static bool are_for(std::size_t size_bytes) noexcept;
  /// Null if the system or the driver refuses.
  [[nodiscard]] void* make(std::size_t size_bytes, unsigned int flags);
  /// Frees the block that begins there; false if none does.
  bool remove(void* address);
  [[nodiscard]] std::optional<block> at(const void* address);

 private:
  std::mutex mutex_;
  std::map<const void*, block> blocks_;
};

/// Those of the process. Never destroyed: memory may be freed while it exits.
pinned_pages& pinned();

}  // namespace hipcuda
