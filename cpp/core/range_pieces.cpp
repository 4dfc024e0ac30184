#include "range_pieces.hpp"

#include <algorithm>
#include <iterator>

#include "leak_log.hpp"
#include "units.hpp"

namespace hipplan {
namespace {

bool same_place(const hip::hipMemLocation& one, const hip::hipMemLocation& other) {
  return one.type == other.type && one.id == other.id;
}

hip::hipMemAccessDesc* find(std::vector<hip::hipMemAccessDesc>& rights, const hip::hipMemLocation& who) {
  const auto at =
      std::ranges::find_if(rights, [&](const auto& one) { return same_place(one.location, who); });
  return at == rights.end() ? nullptr : &*at;
}

/// `rights`, and none for whoever is named in `others` alone.
std::vector<hip::hipMemAccessDesc> completed(std::vector<hip::hipMemAccessDesc> rights,
                                             std::span<const hip::hipMemAccessDesc> others) {
  for (const auto& other : others) {
    if (!find(rights, other.location)) rights.push_back({other.location, hip::hipMemAccessFlagsProtNone});
  }
  return rights;
}

/// Whether HIP says so; what cannot be asked is not.
bool in_force(hip::runtime& runtime, std::uintptr_t address, std::span<const hip::hipMemAccessDesc> rights) {
  return std::ranges::all_of(rights, [&](const auto& right) {
    unsigned long long flags = 0;
    const auto told = runtime.hipMemGetAccess(&flags, &right.location, reinterpret_cast<void*>(address));
    if (told != hip::hipSuccess) runtime.forget_last_error();
    return told == hip::hipSuccess && flags == right.flags;
  });
}

}  // namespace

void range_pieces::settle(std::uintptr_t address, bool succeeded) {
  if (succeeded) {
    known_.erase(address);
    known_.merge(expected_);
  }
  expected_.clear();
}

void range_pieces::has_its_rights(std::uintptr_t address) {
  const auto at = known_.find(address);
  if (at == known_.end() || at->second.lost.empty()) return;
  retract_leak(at->second.lost);
  at->second.lost.clear();
}

bool range_pieces::reaches(pieces::const_iterator end) const {
  auto next = base_;
  for (auto at = known_.begin(); at != end; ++at) {
    if (at->first != next) return false;  // a hole: there is no way to name what lies behind it
    next += at->second.size_bytes;
  }
  return end != known_.end() && end->first == next && end != known_.begin();
}

hip::hipError_t range_pieces::from_base(hip::runtime& runtime, const piece& last, std::uintptr_t address) {
  rights_list everybody = last.rights;
  for (const auto& [where, one] : known_) everybody = completed(std::move(everybody), one.rights);
  const auto set = [&](std::uintptr_t at, const piece& one) {
    const auto rights = completed(one.rights, everybody);
    return runtime.hipMemSetAccess(reinterpret_cast<void*>(base_), at + one.size_bytes - base_, rights.data(),
                                   rights.size());
  };
  const auto before = known_.find(address);
  auto result = set(address, last);
  // Refused, it may be in force for some devices all the same: HIP gives one after another its right.
  const auto behind = result == hip::hipSuccess ? before : std::next(before);
  for (auto at = std::make_reverse_iterator(behind); at != known_.rend(); ++at) {
    auto again = set(at->first, at->second);
    if (again != hip::hipSuccess) {
      runtime.forget_last_error();
      again = set(at->first, at->second);
    }
    has_its_rights(at->first);
    if (again != hip::hipSuccess && !in_force(runtime, at->first, completed(at->second.rights, everybody))) {
      if (result == hip::hipSuccess) result = again;
      at->second.lost = "the rights of a mapping at " + hexadecimal(at->first) +
                        " could not be set again: " + hip::error_name(again);
      report_leak(at->second.lost);
    }
  }
  return result;
}

hip::hipError_t range_pieces::set_access(hip::runtime& runtime, std::uintptr_t address,
                                         std::size_t size_bytes,
                                         std::span<const hip::hipMemAccessDesc> rights) {
  const auto plainly = [&] {
    return runtime.hipMemSetAccess(reinterpret_cast<void*>(address), size_bytes, rights.data(),
                                   rights.size());
  };
  if (known_.empty()) return plainly();
  const auto place = known_.find(address);
  if (place == known_.end()) return plainly();
  auto wanted = place->second;
  for (const auto& right : rights) {
    if (auto* const had = find(wanted.rights, right.location)) {
      had->flags = right.flags;
    } else {
      wanted.rights.push_back(right);
    }
  }
  const auto plain = plainly();
  if (plain == hip::hipErrorInvalidValue && reaches(place)) {
    runtime.forget_last_error();
    if (const auto result = from_base(runtime, wanted, address); result != hip::hipSuccess) return result;
  } else if (plain != hip::hipSuccess) {
    return plain;
  }
  place->second = std::move(wanted);
  has_its_rights(address);
  return hip::hipSuccess;
}

}  // namespace hipplan
