#include "reserved_ranges.hpp"

#include <mutex>
#include <utility>

#include "this_process.hpp"
#include "units.hpp"

namespace hipplan {
namespace {

struct ranges {
  std::mutex mutex;
  std::map<std::uintptr_t, reserved_ranges::entry> by_address;
};

ranges& all() { return of_this_process<ranges>(); }

}  // namespace

reserved_ranges::prepared reserved_ranges::prepare(plan_name range, plan_name layout,
                                                   std::size_t size_bytes) {
  (void)all();
  std::map<std::uintptr_t, entry> single;
  single.emplace(0, entry{size_bytes, std::move(range), std::move(layout)});
  return single.extract(single.begin());
}

void reserved_ranges::add(prepared&& what, std::uintptr_t address) noexcept {
  what.key() = address;
  const std::lock_guard lock(all().mutex);
  all().by_address.insert(std::move(what));
}

void reserved_ranges::remove(std::uintptr_t address) noexcept {
  const std::lock_guard lock(all().mutex);
  all().by_address.erase(address);
}

std::string reserved_ranges::who_has(std::uintptr_t address, std::size_t size_bytes, std::uintptr_t but) {
  const std::lock_guard lock(all().mutex);
  const auto& table = all().by_address;
  for (auto next = table.lower_bound(address + size_bytes); next != table.begin();) {
    const auto& [begin, range] = *--next;
    if (begin + range.size_bytes <= address) break;
    if (begin == but) continue;
    const auto& layout = range.layout.text();
    return (layout.empty() ? "a layout" : "the layout '" + layout + "'") + " has '" + range.range.text() +
           "' there, from " + hexadecimal(begin) + " to " + hexadecimal(begin + range.size_bytes);
  }
  return {};
}

}  // namespace hipplan
