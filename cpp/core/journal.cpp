#include "journal.hpp"

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "queries.hpp"
#include "scoped_device.hpp"

namespace hipplan {
namespace {

constexpr auto id_of = [](const auto& one) { return one.id; };

}  // namespace

journal::~journal() {
  if (!runtime_->may_call() || slots_.empty()) return;  // in a forked child nothing of this is ours to undo
  try {
    for (const auto device : devices_) {
      try {
        synchronize(*runtime_, device);
      } catch (const hip::hip_error& error) {
        report_leak(error.what());
      }
    }
    undo_report report;
    auto all = entries_since(0);
    undo(all, report);
    for (const auto& leak : report.leaks) report_leak(leak.error.what());
  } catch (const std::exception& error) {
    report_leak(error.what());
  }
}

void journal::add_devices(const std::vector<device_id>& devices) {
  const std::lock_guard lock(mutex_);
  for (const auto one : devices) {
    if (std::ranges::find(devices_, one) == devices_.end()) devices_.push_back(one);
  }
}

template <class Make>
entry_id journal::add(Make make) {
  const std::lock_guard lock(mutex_);
  return add_locked(make);
}

void journal::make_room(std::size_t entries) {
  const auto needed = slots_.size() + entries;
  if (needed > slots_.capacity()) slots_.reserve(std::max(needed, 2 * slots_.size()));
}

entry_id journal::create_allocation(std::string name, std::size_t size_bytes,
                                    const allocation_properties& properties) {
  std::optional<scoped_device> current;
  if (properties.location_type == hip::hipMemLocationTypeDevice) {
    current.emplace(*runtime_, device_id{properties.location_id});
  }
  return add([&](owner& out) {
    out.emplace<allocation>(*runtime_, std::move(name), size_bytes, properties).make();
  });
}

entry_id journal::import_allocation(std::string name, std::size_t size_bytes, int descriptor) {
  return add([&](owner& out) {
    out.emplace<allocation>(*runtime_, std::move(name), size_bytes, allocation_properties{})
        .import(descriptor);
  });
}

entry_id journal::reserve(std::string name, std::size_t size_bytes, std::size_t alignment_bytes,
                          std::uintptr_t wanted) {
  return add([&](owner& out) {
    out.emplace<address_range>(*runtime_, std::move(name), size_bytes).make(alignment_bytes, wanted);
  });
}

entry_id journal::map(std::string name, entry_id range, std::size_t offset_bytes, entry_id memory,
                      std::size_t size_bytes) {
  return add([&](owner& out) {
    const auto& behind = get<allocation>(memory);
    out.emplace<mapping>(*runtime_, std::move(name), get<address_range>(range), offset_bytes, size_bytes)
        .make(behind);
  });
}

entry_id journal::create_device_buffer(std::string name, device_id device, std::size_t size_bytes) {
  return add(
      [&](owner& out) { out.emplace<device_buffer>(*runtime_, std::move(name), device, size_bytes).make(); });
}

entry_id journal::create_pinned_buffer(std::string name, device_id device, std::size_t size_bytes,
                                       unsigned int flags) {
  return add([&](owner& out) {
    out.emplace<pinned_buffer>(*runtime_, std::move(name), size_bytes).make(device, flags);
  });
}

entry_id journal::register_buffer(std::string name, device_id device, std::uintptr_t address,
                                  std::size_t size_bytes, unsigned int flags, entry_id region) {
  return add([&](owner& out) {
    auto pages = region == 0 ? nullptr : get<host_region>(region).pages();
    out.emplace<registered_buffer>(*runtime_, std::move(name), size_bytes, std::move(pages))
        .make(device, address, flags);
  });
}

entry_id journal::create_managed_buffer(std::string name, device_id device, std::size_t size_bytes,
                                        unsigned int flags) {
  return add([&](owner& out) {
    out.emplace<managed_buffer>(*runtime_, std::move(name), size_bytes).make(device, flags);
  });
}

entry_id journal::create_stream(std::string name, device_id device) {
  return add([&](owner& out) { out.emplace<stream>(*runtime_, std::move(name)).make(device); });
}

entry_id journal::map_file(std::string name, const std::string& path, std::size_t size_bytes,
                           bool read_only) {
  return add([&](owner& out) {
    out.emplace<host_region>(host_region::map_file(std::move(name), path, size_bytes, read_only));
  });
}

entry_id journal::map_anonymous(std::string name, std::size_t size_bytes, int numa_node, huge_pages pages) {
  return add([&](owner& out) {
    out.emplace<host_region>(host_region::map_anonymous(std::move(name), size_bytes, numa_node, pages));
  });
}

entry_id journal::enable_peer(std::string name, device_id device, device_id peer) {
  return add([&](owner& out) {
    auto& link = out.emplace<peer_link>(*runtime_, std::move(name), device, peer);
    link.make();
    if (link.empty()) out.emplace<std::monostate>();
  });
}

void journal::set_access(entry_id mapped, std::span<const hip::hipMemAccessDesc> rights, bool together) {
  const std::lock_guard lock(mutex_);
  get<mapping>(mapped).set_access(rights, together);
}

void journal::advise(entry_id buffer, std::size_t offset_bytes, std::size_t size_bytes,
                     hip::hipMemoryAdvise advice, device_id device) {
  const std::lock_guard lock(mutex_);
  get<managed_buffer>(buffer).advise(*runtime_, offset_bytes, size_bytes, advice, device);
}

void journal::prefetch(entry_id buffer, std::size_t offset_bytes, std::size_t size_bytes, device_id device,
                       entry_id queue, device_id on) {
  const scoped_device current(*runtime_, on);
  const std::lock_guard lock(mutex_);
  const auto native = queue == 0 ? nullptr : get<stream>(queue).get();
  get<managed_buffer>(buffer).prefetch(*runtime_, offset_bytes, size_bytes, device, native);
}

void journal::attach(entry_id buffer, entry_id queue, unsigned int flags, device_id on) {
  const scoped_device current(*runtime_, on);
  const std::lock_guard lock(mutex_);
  const auto native = queue == 0 ? nullptr : get<stream>(queue).get();
  get<managed_buffer>(buffer).attach(*runtime_, native, flags);
}

void journal::synchronize_stream(entry_id queue, device_id on) {
  const scoped_device current(*runtime_, on);
  hip::hipStream_t native{};
  std::string subject = "the null stream of " + text(on);
  if (queue != 0) {
    const std::lock_guard lock(mutex_);
    native = get<stream>(queue).get();
    subject = get<stream>(queue).identify();
  }
  runtime_->check(runtime_->hipStreamSynchronize(native), "hipStreamSynchronize", subject);
}

entry_id journal::change_access(entry_id mapped, std::vector<hip::hipMemAccessDesc> now,
                                std::vector<hip::hipMemAccessDesc> before, bool together) {
  const std::lock_guard lock(mutex_);
  const auto& what = get<mapping>(mapped);
  auto made = std::make_shared<owner>();
  made->emplace<change>(what.name(), "the access of " + what.identify(),
                        [this, mapped, together, rights = std::move(before)] {
                          get<mapping>(mapped).set_access(rights, together);
                        });
  make_room(1);
  if (now.size() < 2) {
    what.set_access(now, together);
    return take_in(std::move(made));
  }
  // An entry in any case: HIP gives one device after another its right, and keeps what it gave before the one
  // that it refuses.
  const auto entry = take_in(std::move(made));
  what.set_access(now, together);
  return entry;
}

entry_id journal::change_advice(entry_id buffer, std::size_t offset_bytes, std::size_t size_bytes,
                                std::pair<hip::hipMemoryAdvise, device_id> now,
                                std::pair<hip::hipMemoryAdvise, device_id> before) {
  return add([&](owner& out) {
    const auto& what = get<managed_buffer>(buffer);
    out.emplace<change>(what.name(), "the advice of " + what.identify(), [=, this] {
      get<managed_buffer>(buffer).advise(*runtime_, offset_bytes, size_bytes, before.first, before.second);
    });
    what.advise(*runtime_, offset_bytes, size_bytes, now.first, now.second);
  });
}

entry_id journal::take_out(entry_id mapped, entry_id range, entry_id memory,
                           std::vector<hip::hipMemAccessDesc> before, bool together) {
  return add([&](owner& out) {
    auto& place = find(mapped);
    auto* const what = std::get_if<mapping>(&place);
    if (!what || what->empty()) throw std::out_of_range("take_out: not a mapping, or not mapped");
    const auto offset_bytes = what->address() - get<address_range>(range).address();
    (void)get<allocation>(memory);
    const auto put_back = [=, this, &place, name = what->shared_name(), size_bytes = what->size_bytes(),
                           rights = std::move(before)] {
      const auto& behind = get<allocation>(memory);
      auto* again = std::get_if<mapping>(&place);
      if (again->empty()) {  // else it is there again, and there was no memory for what the rights were
                             // refused with
        again = &place.emplace<mapping>(*runtime_, name, get<address_range>(range), offset_bytes, size_bytes);
        again->make(behind);
      }
      if (!rights.empty()) again->set_access(rights, together);
    };
    out.emplace<change>(what->name(), what->identify() + " (to be mapped back)", put_back);
    what->take_out();
  });
}

void journal::keep_changes() {
  const std::lock_guard lock(mutex_);
  std::erase_if(slots_, [](const auto& entry) {
    const auto* const mapped = std::get_if<mapping>(entry.what.get());
    return std::holds_alternative<change>(*entry.what) || (mapped && mapped->empty());
  });
}

std::uintptr_t journal::address(entry_id entry) const {
  const std::lock_guard lock(mutex_);
  return std::visit(
      [](const auto& what) -> std::uintptr_t {
        if constexpr (requires { what.address(); }) return what.address();
        throw std::out_of_range("this journal entry has no address");
      },
      find(entry));
}

std::size_t journal::size_bytes(entry_id entry) const {
  const std::lock_guard lock(mutex_);
  return std::visit(
      [](const auto& what) -> std::size_t {
        if constexpr (requires { what.size_bytes(); }) return what.size_bytes();
        throw std::out_of_range("this journal entry has no size");
      },
      find(entry));
}

std::uintptr_t journal::stream_handle(entry_id queue) const {
  const std::lock_guard lock(mutex_);
  return reinterpret_cast<std::uintptr_t>(get<stream>(queue).get());
}

int journal::share(entry_id memory) {
  const std::lock_guard lock(mutex_);
  if (auto* const what = std::get_if<allocation>(&find(memory))) return what->share();
  throw std::out_of_range("journal entry " + std::to_string(memory) + " is no allocation");
}

std::uintptr_t journal::handle(entry_id memory) const {
  const std::lock_guard lock(mutex_);
  return reinterpret_cast<std::uintptr_t>(get<allocation>(memory).get());
}

std::size_t journal::size() const {
  const std::lock_guard lock(mutex_);
  return slots_.size();
}

entry_id journal::next() const {
  const std::lock_guard lock(mutex_);
  return next_id_;
}

std::vector<std::tuple<entry_id, std::string, std::string>> journal::contents() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::tuple<entry_id, std::string, std::string>> out;
  for (const auto& entry : slots_) {
    std::visit(
        [&](const auto& what) {
          if constexpr (requires { what.identify(); })
            out.emplace_back(entry.id, what.name(), what.identify());
        },
        *entry.what);
  }
  return out;
}

entry_list journal::entries_since(entry_id first) const {
  const std::lock_guard lock(mutex_);
  entry_list out;
  for (auto at = std::ranges::lower_bound(slots_, first, {}, id_of); at != slots_.end(); ++at) {
    out.push_back(at->id);
  }
  return out;
}

entry_list journal::entries_but(const lease_book& leases, std::vector<std::string>& kept) const {
  const std::lock_guard lock(mutex_);
  entry_list out;
  const bool any = leases.size() != 0;
  for (const auto& entry : slots_) {
    if (!any || !must_stay(*entry.what, leases)) {
      out.push_back(entry.id);
      continue;
    }
    std::visit(
        [&](const auto& what) {
          if constexpr (requires { what.name(); }) kept.push_back(what.name());
        },
        *entry.what);
  }
  return out;
}

bool journal::must_stay(const owner& what, const lease_book& leases) {
  if (std::holds_alternative<mapping>(what)) return false;
  if (std::holds_alternative<stream>(what)) return true;  // bytes may be on their way through it
  return std::visit(
      [&](const auto& one) {
        if constexpr (requires { one.address(); }) {
          return !leases.overlapping(one.address(), one.size_bytes()).empty();
        }
        return false;
      },
      what);
}

journal::slots::const_iterator journal::locate(entry_id entry) const {
  if (slots_.empty()) return slots_.end();
  if (slots_.back().id == entry) return std::prev(slots_.end());
  if (entry < slots_.front().id) return slots_.end();
  // Ids ascend by one unless single entries were undone: mostly the place is known without a search.
  const auto place = entry - slots_.front().id;
  if (place < slots_.size() && slots_[place].id == entry) {
    return slots_.begin() + static_cast<std::ptrdiff_t>(place);
  }
  const auto at = std::ranges::lower_bound(slots_, entry, {}, id_of);
  return at != slots_.end() && at->id == entry ? at : slots_.end();
}

journal::owner& journal::find(entry_id entry) const {
  const auto at = locate(entry);
  if (at == slots_.end()) throw std::out_of_range("journal has no entry " + std::to_string(entry));
  return *at->what;
}

}  // namespace hipplan
