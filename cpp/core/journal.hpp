// The journal: owns everything a layout made, in the order it was made.
//
// Each method makes one state-changing driver call. The owner that the object will have, and its place in the
// journal, exist before the call, so nothing (an interrupt, no memory for the owner) can fall between the
// two. Roll back and teardown are one loop over the entries in reverse.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <tuple>
#include <variant>
#include <vector>

#include "buffer.hpp"
#include "change.hpp"
#include "entry_list.hpp"
#include "host_region.hpp"
#include "leases.hpp"
#include "mapping.hpp"
#include "peer_link.hpp"
#include "stream.hpp"

namespace hipplan {

/// What an undo could not give back.
struct leak {
  std::string name;      ///< the plan's name for the object
  std::string identity;  ///< kind, size, address
  hip::hip_error error;
  bool is_change = false;  ///< not an object that was lost, but a change that could not be taken back
};

/// What came of undoing a journal or a part of it.
struct undo_report {
  std::size_t undone = 0;    ///< objects given back
  std::size_t restored = 0;  ///< changes taken back
  std::vector<leak> leaks;
  std::vector<std::string> kept;  ///< names of what stays in the journal because leases on it are out
};

class journal {
 public:
  /// devices: those that may reach what the journal will own. It does not wait for them by itself, but for
  /// the destructor: nobody else can then.
  journal(runtime_ptr runtime, std::vector<device_id> devices)
      : runtime_(std::move(runtime)), devices_(std::move(devices)) {}
  journal(const journal&) = delete;
  journal& operator=(const journal&) = delete;
  /// Waits for the devices, then undoes what is left; failures go to the leak log.
  ~journal();
  /// The devices that may reach what it owns from now on, besides those it knows.
  void add_devices(const std::vector<device_id>& devices);

  // Each throws what the owner's create throws, and then has added nothing.
  entry_id create_allocation(std::string name, std::size_t size_bytes,
                             const allocation_properties& properties);
  entry_id import_allocation(std::string name, std::size_t size_bytes, int descriptor);
  entry_id reserve(std::string name, std::size_t size_bytes, std::size_t alignment_bytes,
                   std::uintptr_t wanted);
  entry_id map(std::string name, entry_id range, std::size_t offset_bytes, entry_id memory,
               std::size_t size_bytes);
  entry_id create_device_buffer(std::string name, device_id device, std::size_t size_bytes);
  entry_id create_pinned_buffer(std::string name, device_id device, std::size_t size_bytes,
                                unsigned int flags);
  /// region: of which host region it is a part; 0: of none here.
  entry_id register_buffer(std::string name, device_id device, std::uintptr_t address, std::size_t size_bytes,
                           unsigned int flags, entry_id region);
  entry_id create_managed_buffer(std::string name, device_id device, std::size_t size_bytes,
                                 unsigned int flags);
  entry_id create_stream(std::string name, device_id device);
  entry_id map_file(std::string name, const std::string& path, std::size_t size_bytes, bool read_only);
  entry_id map_anonymous(std::string name, std::size_t size_bytes, int numa_node, huge_pages pages);
  /// 0 when the link was on already: then there is nothing to undo.
  entry_id enable_peer(std::string name, device_id device, device_id peer);

  // Changes to what an entry owns; giving the object back undoes them too. Throw std::out_of_range when
  // the entry is unknown or of another kind.
  // together: the rights of all that is mapped in the range (mapping.hpp).
  void set_access(entry_id mapping, std::span<const hip::hipMemAccessDesc> rights, bool together);
  void advise(entry_id buffer, std::size_t offset_bytes, std::size_t size_bytes, hip::hipMemoryAdvise advice,
              device_id device);
  // on: the device that the stream belongs to, current during the call. stream 0: that device's null stream.
  void prefetch(entry_id buffer, std::size_t offset_bytes, std::size_t size_bytes, device_id device,
                entry_id stream, device_id on);
  void attach(entry_id buffer, entry_id stream, unsigned int flags, device_id on);
  /// Waits for a stream (hipStreamSynchronize). Throws hip_error.
  void synchronize_stream(entry_id stream, device_id on);

  // Changes that an undo takes back, for a journal whose objects are in use: each is an entry of its own.
  // `before` is what to put back.
  // change_access that is refused for one of several devices is an entry all the same: those before it have
  // their new right. All others that fail are none.
  entry_id change_access(entry_id mapping, std::vector<hip::hipMemAccessDesc> now,
                         std::vector<hip::hipMemAccessDesc> before, bool together);
  entry_id change_advice(entry_id buffer, std::size_t offset_bytes, std::size_t size_bytes,
                         std::pair<hip::hipMemoryAdvise, device_id> now,
                         std::pair<hip::hipMemoryAdvise, device_id> before);
  /// Unmaps; taking it back maps the same memory at the same place with the same rights, as the same entry.
  entry_id take_out(entry_id mapping, entry_id range, entry_id memory,
                    std::vector<hip::hipMemAccessDesc> before, bool together);
  /// The changes stay: forgets how to take them back, and the mappings that were taken out.
  void keep_changes();

  [[nodiscard]] std::uintptr_t address(entry_id entry) const;
  [[nodiscard]] std::uintptr_t handle(entry_id allocation) const;
  /// See allocation::share().
  [[nodiscard]] int share(entry_id allocation);
  [[nodiscard]] std::uintptr_t stream_handle(entry_id stream) const;
  [[nodiscard]] std::size_t size_bytes(entry_id entry) const;
  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] hip::runtime& runtime() const noexcept { return *runtime_; }
  /// The entry that would come next: what is made from now on has this number or a higher one.
  [[nodiscard]] entry_id next() const;
  /// (entry, name, kind and size and address) of all that is owned.
  [[nodiscard]] std::vector<std::tuple<entry_id, std::string, std::string>> contents() const;

  /// Every entry from `first` on.
  [[nodiscard]] entry_list entries_since(entry_id first) const;
  /// Every entry that may be undone while leases are out: mappings go, so that a stale pointer
  /// faults, but what they lie in, and every buffer under a lease, stays, so that it never hits new memory;
  /// streams stay, because a thread that moves bytes may use them. The names of what stays are added to
  /// `kept`.
  [[nodiscard]] entry_list entries_but(const lease_book& leases, std::vector<std::string>& kept) const;
  /// Undoes these entries, wherever they stand, latest first, at least one and then
  /// as many as fit until a time; `entries` becomes what is left. One that fails does not stop the others,
  /// and one that is not there any more is nothing to undo.
  void undo(entry_list& entries, undo_report& report,
            std::chrono::steady_clock::time_point until = std::chrono::steady_clock::time_point::max());

 private:
  friend class batch_runner;

  // Empty only while the call runs that fills or undoes it.
  using owner = std::variant<std::monostate, allocation, address_range, mapping, device_buffer, pinned_buffer,
                             registered_buffer, managed_buffer, stream, peer_link, host_region, change>;
  // Those of a batch lie side by side, in one piece of memory that goes with the last of them.
  using owner_ptr = std::shared_ptr<owner>;
  struct slot {
    entry_id id;
    owner_ptr what;
  };

  template <class Make>
  entry_id add(Make make);
  // For who holds the lock.
  template <class Make>
  entry_id add_locked(Make make);
  /// Room for so many more entries, so that take_in() needs no memory.
  void make_room(std::size_t entries);
  entry_id take_in(owner_ptr made) noexcept;
  template <class Kind>
  const Kind& get(entry_id entry) const;
  using slots = std::vector<slot>;  // ids ascend
  [[nodiscard]] slots::const_iterator locate(entry_id entry) const;
  owner& find(entry_id entry) const;
  /// Of the last so many; whether the time has passed.
  bool undo_some(entry_list& entries, undo_report& report, std::chrono::steady_clock::time_point until);
  /// The first of them that are given back by one plain call each; false if the very first is not. What was
  /// tried is added to `done`.
  bool undo_row(std::span<owner* const> owners, std::size_t& done, undo_report& report, deadline& stop);
  static void undo(owner& what, undo_report& report);
  /// Latest first; null: nothing.
  void drop(std::span<owner* const> undone);
  static bool must_stay(const owner& what, const lease_book& leases);

  runtime_ptr runtime_;
  std::vector<device_id> devices_;
  mutable std::mutex mutex_;
  slots slots_;
  entry_id next_id_ = 1;
};

template <class Make>
entry_id journal::add_locked(Make make) {
  auto made = std::make_shared<owner>();
  make_room(1);
  make(*made);
  if (std::holds_alternative<std::monostate>(*made)) return 0;  // there was nothing to own
  return take_in(std::move(made));
}

inline entry_id journal::take_in(owner_ptr made) noexcept {
  slots_.push_back({next_id_, std::move(made)});
  return next_id_++;
}

template <class Kind>
const Kind& journal::get(entry_id entry) const {
  if (const auto* what = std::get_if<Kind>(&find(entry))) return *what;
  throw std::out_of_range("journal entry " + std::to_string(entry) + " is of another kind");
}

}  // namespace hipplan
