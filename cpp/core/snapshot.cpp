#include "snapshot.hpp"

namespace hipplan {

template <class Use>
auto snapshot::with(slot_id slot, Use use) const {
  const auto lock = state_->locked();
  if (slot >= table_.size() || !table_[slot] || !table_[slot]->full()) {
    throw std::out_of_range("nothing is in slot " + std::to_string(slot));
  }
  return use(table_[slot]->what);
}

std::uintptr_t snapshot::address(slot_id slot) const {
  return with(slot, [](const held::owner& owner) {
    return std::visit(
        [](const auto& object) -> std::uintptr_t {
          if constexpr (requires { object.base(); }) return object.base();
          if constexpr (requires { object.address(); }) return object.address();
          throw std::out_of_range("what is in this slot has no address");
        },
        owner);
  });
}

std::size_t snapshot::size_bytes(slot_id slot) const {
  return with(slot, [](const held::owner& owner) {
    return std::visit(
        [](const auto& object) -> std::size_t {
          if constexpr (requires { object.base(); })
            return object.size_bytes() - (object.base() - object.address());
          if constexpr (requires { object.size_bytes(); }) return object.size_bytes();
          throw std::out_of_range("what is in this slot has no size");
        },
        owner);
  });
}

range_place snapshot::place(slot_id slot) const {
  return with(slot, [](const held::owner& owner) {
    const auto* const range = std::get_if<address_range>(&owner);
    if (!range) throw std::out_of_range("what is in this slot is no range of addresses");
    return range->place();
  });
}

std::uintptr_t snapshot::handle(slot_id slot) const {
  return with(slot, [](const held::owner& owner) {
    const auto* const memory = std::get_if<allocation>(&owner);
    if (!memory) throw std::out_of_range("what is in this slot is no allocation");
    return reinterpret_cast<std::uintptr_t>(memory->get());
  });
}

std::uintptr_t snapshot::stream_handle(slot_id slot) const {
  return with(slot, [](const held::owner& owner) {
    const auto* const queue = std::get_if<stream>(&owner);
    if (!queue) throw std::out_of_range("what is in this slot is no stream");
    return reinterpret_cast<std::uintptr_t>(queue->get());
  });
}

int snapshot::share(slot_id slot) const {
  return with(slot, [](held::owner& owner) {
    auto* const memory = std::get_if<allocation>(&owner);
    if (!memory) throw std::out_of_range("what is in this slot is no allocation");
    return memory->share();
  });
}

bool snapshot::shared(slot_id slot) const {
  return with(slot, [](const held::owner& owner) {
    const auto* const memory = std::get_if<allocation>(&owner);
    if (!memory) throw std::out_of_range("what is in this slot is no allocation");
    return memory->is_shared();
  });
}

bool snapshot::has(slot_id slot) const {
  const auto lock = state_->locked();
  return slot < table_.size() && table_[slot] && table_[slot]->full();
}

}  // namespace hipplan
