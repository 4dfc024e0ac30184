#include "numa.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <vector>

namespace hipplan {
namespace {

// linux/mempolicy.h, which some systems do not have
constexpr int mpol_preferred = 1;
constexpr int mpol_bind = 2;
constexpr std::size_t pages_per_call = 4096;

node_mask only(int node) noexcept {
  node_mask out{};
  constexpr auto bits = 8 * sizeof(unsigned long);
  const auto number = static_cast<std::size_t>(node);
  if (number < nodes_max) out.at(number / bits) = 1UL << (number % bits);
  return out;
}

}  // namespace

near_node::near_node(int node) noexcept {
  if (node < 0) return;
  if (syscall(SYS_get_mempolicy, &policy_before_, mask_before_.data(), nodes_max, nullptr, 0) != 0) return;
  const auto mask = only(node);
  // The kernel uses one bit less than the given count.
  changed_ = syscall(SYS_set_mempolicy, mpol_preferred, mask.data(), nodes_max) == 0;
}

near_node::~near_node() {
  if (!changed_) return;
  const bool has_nodes = std::ranges::any_of(mask_before_, [](auto word) { return word != 0; });
  (void)syscall(SYS_set_mempolicy, policy_before_, has_nodes ? mask_before_.data() : nullptr,
                has_nodes ? nodes_max : 0);
}

void bind_to_node(void* address, std::size_t size_bytes, int node) {
  const auto mask = only(node);
  if (syscall(SYS_mbind, address, size_bytes, mpol_bind, mask.data(), nodes_max, 0) != 0) {
    throw std::system_error(errno, std::generic_category(), "mbind to NUMA node " + std::to_string(node));
  }
}

std::map<int, std::size_t> page_nodes(std::uintptr_t address, std::size_t size_bytes) {
  const auto page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const auto end = address + size_bytes;
  std::map<int, std::size_t> page_counts;
  std::vector<void*> pages;
  std::vector<int> nodes(pages_per_call);
  for (auto at = address / page_bytes * page_bytes; at < end;) {
    pages.clear();
    for (; at < end && pages.size() < pages_per_call; at += page_bytes) {
      pages.push_back(reinterpret_cast<void*>(at));
    }
    // Without target nodes move_pages moves nothing: it reports where the pages are.
    if (syscall(SYS_move_pages, 0, pages.size(), pages.data(), nullptr, nodes.data(), 0) != 0) break;
    for (std::size_t n = 0; n < pages.size(); ++n) {
      if (nodes[n] >= 0) ++page_counts[nodes[n]];
    }
  }
  return page_counts;
}

}  // namespace hipplan
