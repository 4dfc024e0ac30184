// The NUMA node of host memory. With system calls, because not every machine has libnuma.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

namespace hipplan {

/// Linux's limit.
inline constexpr unsigned long nodes_max = 1024;
using node_mask = std::array<unsigned long, nodes_max / (8 * sizeof(unsigned long))>;

/// While it lives, the calling thread's allocations prefer a node. -1, or a kernel that refuses: no effect.
class near_node {
 public:
  explicit near_node(int node) noexcept;
  ~near_node();
  near_node(const near_node&) = delete;
  near_node& operator=(const near_node&) = delete;

 private:
  bool changed_ = false;
  int policy_before_ = 0;
  node_mask mask_before_{};
};

/// Binds memory strictly to a node. Throws std::system_error.
void bind_to_node(void* address, std::size_t size_bytes, int node);

/// Node -> how many pages of a range are on it. Counts pages that exist and whose node the kernel reports.
[[nodiscard]] std::map<int, std::size_t> page_nodes(std::uintptr_t address, std::size_t size_bytes);

}  // namespace hipplan
