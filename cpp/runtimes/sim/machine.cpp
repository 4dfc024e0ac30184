#include "machine.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace hipsim {
namespace {

void hide_or_throw(std::uintptr_t address, std::uint64_t bytes) {
  if (!hide_from_cpu(address, bytes)) throw std::bad_alloc();
}

}  // namespace

machine::machine(machine_profile shape) : profile(std::move(shape)), rules(profile.version) {
  for (int i = 0; i < static_cast<int>(profile.devices.size()); ++i) {
    devices.emplace_back(owner_name(i));
    devices.back().in_use_bytes = this->shape(i).in_use_bytes;
  }
}

std::string machine::owner_name(int device) const {
  return device == host_device ? "host" : shape(device).uuid_in_hex();
}

int machine::owner_named(const std::string& owner, int otherwise) const {
  for (int device = host_device; device < static_cast<int>(profile.devices.size()); ++device) {
    if (owner_name(device) == owner) return device;
  }
  return otherwise;
}

bool machine::has_hmm() const {
  return std::all_of(profile.devices.begin(), profile.devices.end(), [](auto& d) { return d.managed; });
}

bool machine::has_xnack() const {
  return std::all_of(profile.devices.begin(), profile.devices.end(), [](auto& d) { return d.xnack; });
}

std::uint64_t machine::free_bytes(int device) const {
  return free_beside(device, [](const memory_file& file) { return file.is_shared(); });
}

template <class Counts>
std::uint64_t machine::free_beside(int device, const Counts& counts) const {
  const bool on_host = device == host_device;
  const auto& state = on_host ? host : devices[static_cast<std::size_t>(device)];
  auto left = on_host ? profile.host_memory_bytes : shape(device).memory_bytes;
  const auto take = [&](std::uint64_t bytes) { left -= std::min(left, bytes); };
  take(state.used_bytes);
  take(state.in_use_bytes);  // by other processes: may be more than there is
  for (const auto& memory : exported_) {
    if (memory->device == device && counts(*memory->memory.file())) take(memory->charged_bytes);
  }
  return left;
}

bool machine::empty() const {
  const bool no_peers = std::all_of(devices.begin(), devices.end(), [](auto& d) { return d.peers == 0; });
  return blocks.empty() && reservations.empty() && mappings.empty() && allocations.empty() &&
         streams.empty() && events.empty() && no_peers;
}

charge::~charge() { machine_->credit(device_, bytes_); }

charge machine::charged(int device, std::uint64_t bytes) {
  forget_some_unshared_memory();
  if (bytes > free_beside(device, [](const memory_file&) { return true; })) {
    forget_unshared_memory();
    if (bytes > free_bytes(device)) throw std::bad_alloc();
  }
  at(device).used_bytes += bytes;
  return {*this, device, bytes};
}

std::shared_ptr<physical> machine::take_memory(int device, std::uint64_t bytes, bool file_of_its_own) {
  auto memory = std::make_shared<physical>();
  memory->device = device;
  memory->bytes = bytes;
  if (file_of_its_own) {
    auto file = std::make_shared<memory_file>(owner_name(device), bytes);
    memory->identity = file->identity();
    memory->memory = extent(std::move(file), 0, bytes);
  } else {
    memory->memory = at(device).pool.take(bytes);
  }
  memory->charged_bytes = bytes;
  if (memory->identity != 0) by_identity_[memory->identity] = memory;
  return memory;
}

std::shared_ptr<physical> machine::known_memory(std::uint64_t identity) {
  const auto found = by_identity_.find(identity);
  auto memory = found == by_identity_.end() ? nullptr : found->second.lock();
  if (std::erase(exported_, memory) > 0) at(memory->device).used_bytes += memory->charged_bytes;
  return memory;
}

std::vector<const physical*> machine::exported_memory() const {
  std::vector<const physical*> out;
  for (const auto& memory : exported_) {
    if (memory->memory.file()->is_shared()) out.push_back(memory.get());
  }
  return out;
}

void machine::forget_unshared_memory() {
  std::erase_if(exported_, [&](const auto& memory) {
    if (memory->memory.file()->is_shared()) return false;
    by_identity_.erase(memory->identity);
    return true;
  });
  still_exported_ = exported_.size();
}

void machine::forget_some_unshared_memory() {
  // Each is a question to the kernel: to ask for thousands at each allocation and release would be the
  // square.
  if (exported_.size() <= 64 || exported_.size() >= 2 * still_exported_) forget_unshared_memory();
}

std::uint64_t machine::add_allocation(std::shared_ptr<physical> memory, const allocation_properties& p) {
  const auto id = new_id();
  if (memory->identity != 0) by_identity_[memory->identity] = memory;
  allocations.emplace(id, allocation{std::move(memory), p, 1, 0});
  return id;
}

void machine::drop_reference(std::uint64_t id) {
  --allocations.at(id).references;
  drop_if_unused(id);
}

void machine::drop_mappings(std::map<std::uintptr_t, mapping>::iterator first, std::size_t count,
                            bool keep_reservation_busy) {
  std::uint64_t bytes = 0;
  bool shown = false;
  auto piece = first;
  for (std::size_t i = 0; i < count; ++i, ++piece) {
    bytes += piece->second.bytes;
    shown = shown || piece->second.cpu_rights != 0;
  }
  if (shown) hide_or_throw(first->first, bytes);
  for (; count > 0; --count) drop_mapping(first++, keep_reservation_busy);
}

void machine::drop_mapping(std::map<std::uintptr_t, mapping>::iterator piece, bool keep_reservation_busy) {
  const auto gone = piece->second;
  auto& place = reservations.at(gone.reservation);
  auto& owner = allocations.at(gone.allocation);
  if (owner.memory->device != host_device && quirk("free_memory_with_reservation")) {
    place.kept.insert(owner.memory);
  }
  mappings.erase(piece);
  --place.mappings;
  place.stuck = place.stuck || keep_reservation_busy;
  --owner.mappings;
  drop_if_unused(gone.allocation);
}

void machine::drop_if_unused(std::uint64_t id) {
  const auto found = allocations.find(id);
  if (found->second.references > 0 || found->second.mappings > 0) return;
  auto memory = std::move(found->second.memory);
  allocations.erase(found);
  drop_memory(std::move(memory));
}

void machine::drop_memory(std::shared_ptr<physical> memory) {
  if (memory.use_count() > 1) return;  // imported in this process as well, or kept by a reservation
  forget_some_unshared_memory();
  credit(memory->device, memory->charged_bytes);
  const bool leaves =
      memory->identity != 0 && memory->charged_bytes > 0 && memory->memory.file()->is_shared();
  if (leaves) {
    exported_.push_back(std::move(memory));
  } else if (memory->identity != 0) {
    by_identity_.erase(memory->identity);
  }
}

void machine::update_cpu_view(std::uintptr_t address, mapping& piece) {
  const auto& memory = memory_of(piece);
  const bool visible = memory.device != host_device && shape(memory.device).host_visible;
  int rights = PROT_NONE;
  if (piece.host_may_read || (visible && piece.readers != 0)) rights |= PROT_READ;
  if (piece.host_may_write || (visible && piece.writers != 0)) rights |= PROT_READ | PROT_WRITE;
  if (rights == piece.cpu_rights) return;
  if (rights == PROT_NONE) {
    hide_or_throw(address, piece.bytes);
  } else {
    show_to_cpu(address, piece.bytes, rights, memory.memory.file()->descriptor(), memory.memory.offset());
  }
  piece.cpu_rights = rights;
}

int machine::reported_device(const mapping& piece) const {
  const auto& handle = allocations.at(piece.allocation);
  return handle.imported && handle.memory->device != host_device ? handle.properties.location_id
                                                                 : handle.memory->device;
}

bool machine::is_reached(int device) const {
  return device != host_device &&
         std::ranges::any_of(devices, [&](const auto& other) { return (other.peers >> device & 1) != 0; });
}

const memory_file& machine::own_file(std::uintptr_t address, block& owner) {
  if (!owner.own_file && !owner.foreign) {
    owner.memory.move_to_own_file(owner_name(owner.device));
    owner.own_file = true;
    if (shape(owner.device).host_visible) {
      show_to_cpu(address, owner.memory.bytes(), PROT_READ | PROT_WRITE, owner.memory.file()->descriptor(),
                  0);
    }
  }
  return *owner.memory.file();
}

const memory_file& machine::own_file(const mapping& piece) {
  const auto memory = allocations.at(piece.allocation).memory;
  if (memory->identity == 0) {
    memory->memory.move_to_own_file(owner_name(memory->device));
    memory->identity = memory->memory.file()->identity();
    by_identity_[memory->identity] = memory;
    for (const auto& [address, other] : mappings) {
      if (other.cpu_rights == PROT_NONE || &memory_of(other) != memory.get()) continue;
      show_to_cpu(address, other.bytes, other.cpu_rights, memory->memory.file()->descriptor(), 0);
    }
  }
  return *memory->memory.file();
}

void machine::drop_exported_block(block& gone) {
  auto memory = std::make_shared<physical>();
  memory->device = gone.device;
  memory->bytes = memory->charged_bytes = gone.memory.bytes();
  memory->identity = gone.memory.file()->identity();
  memory->memory = std::move(gone.memory);
  by_identity_[memory->identity] = memory;
  drop_memory(std::move(memory));
}

std::uintptr_t machine::show_device_memory(block& fresh) {
  const auto bytes = page_ceiling(fresh.bytes);
  const auto address = addresses.reserve(bytes, 0, 0);
  if (address == 0) return 0;
  try {
    if (shape(fresh.device).host_visible) {
      show_to_cpu(address, bytes, PROT_READ | PROT_WRITE, fresh.memory.file()->descriptor(),
                  fresh.memory.offset());
    }
    add_block(address, std::move(fresh));
  } catch (...) {
    if (hide_from_cpu(address, bytes)) addresses.release(address, bytes);
    throw;
  }
  return address;
}

void machine::add_block(std::uintptr_t address, block fresh) {
  const bool is_registered = fresh.kind == block_kind::registered;
  if (!is_registered) forget_registered(address, page_ceiling(fresh.bytes));
  fresh.buffer_id = new_buffer_id();
  const auto added = blocks.emplace(address, std::move(fresh)).first;
  if (!is_registered) return;
  try {
    registered_.insert(address);
  } catch (...) {
    blocks.erase(added);
    throw;
  }
  longest_registered_bytes_ = std::max(longest_registered_bytes_, added->second.bytes);
}

void machine::drop_block(std::map<std::uintptr_t, block>::iterator it) {
  const auto address = it->first;
  auto& gone = it->second;
  const auto bytes = page_ceiling(gone.bytes);
  switch (gone.kind) {
    case block_kind::device:
      if (shape(gone.device).host_visible) hide_or_throw(address, bytes);
      addresses.release(address, bytes);
      if (gone.own_file) {
        drop_exported_block(gone);
      } else if (!gone.foreign) {  // for which the other process is charged
        credit(gone.device, bytes);
      }
      break;
    case block_kind::pinned:
    case block_kind::managed:
      munmap(reinterpret_cast<void*>(address), bytes);
      credit(host_device, bytes);
      break;
    case block_kind::registered:
      credit(host_device, gone.bytes);
      registered_.erase(address);
      break;
  }
  blocks.erase(it);
}

void machine::forget_registered(std::uintptr_t address, std::uint64_t bytes) {
  auto behind = registered_.lower_bound(address + bytes);
  while (behind != registered_.begin()) {  // they may overlap, so one that begins earlier may end later
    const auto it = std::prev(behind);
    if (*it < address && address - *it >= longest_registered_bytes_) return;
    const auto found = blocks.find(*it);
    if (*it < address && address - *it >= found->second.bytes) {
      behind = it;
    } else {
      drop_block(found);
    }
  }
}

void machine::drop_reservation(std::map<std::uintptr_t, reservation>::iterator it) {
  auto kept = std::move(it->second.kept);
  addresses.release(it->first, page_ceiling(it->second.bytes));
  reservations.erase(it);
  while (!kept.empty()) drop_memory(std::move(kept.extract(kept.begin()).value()));
}

}  // namespace hipsim
