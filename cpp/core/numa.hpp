// Where host memory lies: the NUMA node of its pages. By system calls: not every machine has libnuma.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

namespace hipplan {

/// Linux knows no node beyond.
inline constexpr unsigned long nodes_max = 1024;
using node_mask = std::array<unsigned long, nodes_max / (8 * sizeof(unsigned long))>;

/// What the calling thread takes meanwhile comes from a node, if it can. -1, or a kernel that refuses: from
/// where it came from before.
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

/// The memory comes from that node or is refused. Throws std::system_error.
void bind_to_node(void* address, std::size_t size_bytes, int node);

/// Node -> how many pages of a range are on it; of those that are there, and that the kernel tells of.
[[nodiscard]] std::map<int, std::size_t> page_nodes(std::uintptr_t address, std::size_t size_bytes);

}  // namespace hipplan
