#include "address_search.hpp"

#include <algorithm>
#include <utility>

#include "reserved_ranges.hpp"

namespace hipplan {
namespace {

constexpr std::size_t page_bytes = 4096;
/// No processor has addresses of user space beyond this.
constexpr std::uintptr_t addresses_end = std::uintptr_t{1} << 57;

/// Makes room for one more without copying each time.
template <class Element>
void make_room(std::vector<Element>& of, std::size_t wanted) {
  if (of.capacity() < wanted) of.reserve(std::max(wanted, 2 * of.capacity()));
}

}  // namespace

address_search::address_search(hip::runtime& runtime, plan_name name, plan_name layout,
                               const reserve_range& what, held& slot, retirement& leftovers)
    : runtime_(runtime),
      name_(std::move(name)),
      layout_(std::move(layout)),
      what_(what),
      slot_(slot),
      leftovers_(leftovers) {
  make_room(leftovers_.segments, leftovers_.segments.size() + 1);
}

bool address_search::go_on(deadline& slice, time until, time gives_up) {
  if (what_.wanted != 0 && !turn_.take(until)) return false;
  for (;;) {
    if (tries_ != 0) {
      if (const auto why = why_not(gives_up); !why.empty()) {
        if (what_.exact) throw address_taken(in_slot().address(), why);
        return true;
      }
      keep();
    }
    ask_next();
    if (what_.wanted == 0 || in_slot().address() == what_.wanted) return true;
    slice.call_made();
    if (slice.over()) return false;
  }
}

void address_search::end() noexcept {
  if (!kept_) return;
  if (runtime_.may_call()) {
    const auto before = leftovers_.owners.size();
    for (auto at = kept_->owners.rbegin(); at != kept_->owners.rend(); ++at) {
      auto& owner = *at;  // clang 15 has no views of libstdc++ 12
      try {
        if (auto* const range = std::get_if<address_range>(&owner.what)) range->release();
      } catch (const std::exception&) {
        leftovers_.owners.push_back(&owner);  // there is room
      }
    }
    if (leftovers_.owners.size() != before) leftovers_.segments.push_back(kept_);
  }
  kept_ = nullptr;
  turn_.end();
}

void address_search::ask(std::size_t size_bytes, std::uintptr_t wanted, std::size_t alignment_bytes) {
  const auto slack_bytes = size_bytes == whole_bytes() ? what_.slack_bytes : 0;
  address_range empty(runtime_, name_, layout_, size_bytes - slack_bytes, alignment_bytes, slack_bytes);
  slot_.what.emplace<address_range>(std::move(empty));
  ++tries_;
  in_slot().make(wanted);
}

/// Asks for the lead while it is sought, else for the range.
void address_search::ask_next() {
  if (lead_ != lead::sought) return ask(whole_bytes(), what_.wanted, what_.alignment_bytes);
  ask(what_.wanted - step_begin(), step_begin(), 0);
  if (in_slot().address() == step_begin()) lead_ = lead::done;
}

/// Makes the driver's free addresses that it gave fewer: they are kept, or, if they reach into the wanted
/// ones, only the part before those.
void address_search::keep() {
  if (overlaps()) {
    const auto begin = in_slot().address();
    in_slot().release();
    ask(what_.wanted - begin, begin, 0);
  }
  make_room(kept_->owners, kept_->owners.size() + 1);
  make_room(leftovers_.owners, leftovers_.owners.size() + kept_->owners.size() + 1);
  kept_bytes_ += in_slot().size_bytes();
  kept_->owners.emplace_back().what.emplace<address_range>(std::move(in_slot()));
}

bool address_search::overlaps() const {
  const auto begin = in_slot().address();
  return begin < what_.wanted + whole_bytes() && what_.wanted < begin + in_slot().size_bytes();
}

/// Why there is no further try; empty: there is one.
std::string address_search::why_not(time gives_up) {
  if (tries_ == 1) {
    if (auto why = why_never(); !why.empty()) return why;
  }
  const auto times = std::to_string(tries_) + (tries_ == 1 ? " time" : " times");
  const std::string elsewhere = "the driver placed it elsewhere ";
  if (tries_ >= most_tries) return elsewhere + times;
  if (kept_bytes_ + 2 * whole_bytes() > most_bytes) return elsewhere + times + ", in 8 TiB of addresses";
  if (std::chrono::steady_clock::now() >= gives_up)
    return elsewhere + times + ", until the time for the change was over";
  const auto begin = in_slot().address();
  if (overlaps() && begin > what_.wanted)
    return "the driver has free addresses from " + hexadecimal(begin) + " on, but none before" + why_cuda();
  if (!mapped_.empty() && !mapped_.contains(begin)) {
    mapped_ = mapped_memory::now();
    if (lead_ == lead::sought) {
      lead_ = lead::done;  // the driver refuses it
    } else if (lead_ == lead::not_needed && what_.wanted != step_begin() && !passes_step()) {
      lead_ = lead::sought;
    }
    if (++refusals_ == most_refusals)
      return "the driver had no other free addresses, and placed it elsewhere " + times + why_cuda();
  }
  return {};
}

/// What CUDA demands of such a range, as an addition to a reason; empty: nothing.
std::string address_search::why_cuda() const {
  if (what_.wanted == step_begin() || !passes_step()) return {};
  return "; CUDA gives a range that passes a multiple of 32 MiB only an address that is one";
}

/// Why the address can never be had; empty: it may be.
std::string address_search::why_never() {
  const auto multiple = std::max(page_bytes, what_.alignment_bytes);
  if (what_.wanted % multiple != 0)
    return "the address is no multiple of " + std::to_string(multiple) + " bytes";
  if (what_.wanted > addresses_end || whole_bytes() > addresses_end - what_.wanted)
    return "no process has such addresses";
  auto why = reserved_ranges::who_has(what_.wanted, whole_bytes(), in_slot().address());
  if (!why.empty()) return why;
  mapped_ = mapped_memory::now();
  return mapped_.accessible_at(what_.wanted, whole_bytes());
}

}  // namespace hipplan
