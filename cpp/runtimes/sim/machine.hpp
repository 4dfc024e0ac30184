// The simulated machine: everything that is alive, in tables ordered by address. Pure state, no HIP types.
//
// HIP's rules (which argument is checked first, which error is returned) are in calls/. A machine has no lock
// of its own: process.hpp locks it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "address_space.hpp"
#include "host_functions.hpp"
#include "managed_ranges.hpp"
#include "memory_file.hpp"
#include "personality.hpp"
#include "profile.hpp"

namespace hipsim {

inline constexpr int host_device = -1;

/// Physical memory. It lives as long as a handle to it, or (quirk) a reservation that it was mapped in.
struct physical {
  int device = 0;  ///< that owns it; host_device: the host
  std::uint64_t bytes = 0;
  std::uint64_t charged_bytes = 0;  ///< 0 if another process is charged for it
  std::uint64_t identity = 0;       ///< of its own file; 0: it is part of the device's file
  extent memory;
};

/// The properties passed to hipMemCreate, for later queries.
struct allocation_properties {
  std::uint32_t type = 0;
  std::uint32_t handle_type = 0;
  std::uint32_t location_type = 0;
  std::int32_t location_id = 0;
  void* win32_metadata = nullptr;
  std::uint8_t compression = 0;
  std::uint8_t rdma = 0;
  std::uint16_t usage = 0;
};

/// A handle. It lives while the program has references or mappings of it.
struct allocation {
  std::shared_ptr<physical> memory;
  allocation_properties properties;
  std::uint32_t references = 1;  ///< create, import and counting retains, minus releases
  std::uint32_t mappings = 0;
  bool imported = false;
  int descriptor = -1;  ///< quirks: the first one exported, or the imported one
};

struct reservation {
  std::uint64_t bytes = 0;
  std::uint64_t mappings = 0;
  bool forgotten = false;                    ///< quirk address_free_forgets
  bool stuck = false;                        ///< quirk unmap_pieces_leaks
  std::set<std::shared_ptr<physical>> kept;  ///< quirk free_memory_with_reservation: what was mapped here
};

/// A piece: one handle's memory at one address.
struct mapping {
  std::uint64_t bytes = 0;
  std::uint64_t allocation = 0;
  std::uintptr_t reservation = 0;
  std::uint64_t readers = 0;  ///< one bit per device
  std::uint64_t writers = 0;
  bool host_may_read = false;
  bool host_may_write = false;
  int cpu_rights = 0;   ///< what the CPU sees now, as PROT_ bits
  bool opened = false;  ///< quirk peer_access_opens_mappings: no later call opens it
  std::uint32_t buffer_id = 0;
  bool synchronous = false;  ///< SYNC_MEMOPS of hipPointerSetAttribute
};

enum class block_kind { device, pinned, managed, registered };

/// Memory that one call allocated together with its address.
struct block {
  block_kind kind = block_kind::device;
  std::uint64_t bytes = 0;  ///< as requested; not rounded to pages
  int device = 0;           ///< current at the call
  std::uint32_t flags = 0;
  bool synchronous = false;  ///< SYNC_MEMOPS of hipPointerSetAttribute
  bool pooled = false;       ///< from hipMallocAsync; since 7.0 that is virtual memory
  bool own_file = false;     ///< device memory that was exported
  bool foreign = false;      ///< device memory of another process
  unsigned opened = 0;       ///< how often foreign memory was opened and not closed
  std::uint32_t buffer_id = 0;
  extent memory;           ///< device memory only
  managed_ranges managed;  ///< managed memory only
};

struct stream {
  int device = 0;
  std::uint32_t flags = 0;
  int priority = 0;
};

struct event {
  int device = 0;  ///< current when it was made
  std::uint32_t flags = 0;
  bool recorded = false;
  std::uint64_t recorded_ns = 0;
  host_functions before{};  ///< that had not returned when it was recorded
};

struct device_state {
  explicit device_state(std::string owner) : pool(std::move(owner)) {}
  memory_pool pool;
  std::uint64_t used_bytes = 0;
  bool used = false;               ///< hipMalloc was called on it: the primary context is then "active"
  std::uint64_t in_use_bytes = 0;  ///< by other processes
  std::uint64_t peers = 0;         ///< devices whose memory this one's kernels may reach
  bool open_to_links = false;      ///< quirk peer_access_for_all
};

/// The entry of an address-ordered table that holds `address`, or end().
template <class Table>
[[nodiscard]] auto containing(Table& table, std::uintptr_t address) {
  auto it = table.upper_bound(address);
  if (it == table.begin()) return table.end();
  --it;
  return address - it->first < it->second.bytes ? it : table.end();
}

class machine;

/// Memory that is counted as used and not yet owned.
class charge {
 public:
  charge(machine& counting, int device, std::uint64_t bytes)
      : machine_(&counting), device_(device), bytes_(bytes) {}
  charge(const charge&) = delete;
  charge& operator=(const charge&) = delete;
  ~charge();
  /// From here on it is credited by who frees the memory.
  void keep() { bytes_ = 0; }

 private:
  machine* machine_;
  int device_;
  std::uint64_t bytes_;
};

class machine {
 public:
  explicit machine(machine_profile shape);

  const machine_profile profile;
  const personality rules;

  address_space addresses{quirk("free_blocks_first")};
  std::vector<device_state> devices;
  device_state host{"host"};
  std::map<std::uintptr_t, block> blocks;
  std::map<std::uintptr_t, reservation> reservations;
  std::map<std::uintptr_t, mapping> mappings;
  std::unordered_map<std::uint64_t, allocation> allocations;
  std::unordered_map<std::uint64_t, stream> streams;
  std::unordered_map<std::uint64_t, event> events;

  [[nodiscard]] int device_count() const { return static_cast<int>(devices.size()); }
  [[nodiscard]] bool is_device(int ordinal) const { return ordinal >= 0 && ordinal < device_count(); }
  [[nodiscard]] const device_profile& shape(int device) const {
    return profile.devices[static_cast<std::size_t>(device)];
  }
  [[nodiscard]] device_state& at(int device) {
    return device == host_device ? host : devices[static_cast<std::size_t>(device)];
  }
  [[nodiscard]] bool quirk(const char* name) const { return profile.quirks.contains(name); }
  /// Managed memory is real only if the driver of every device has HMM; likewise XNACK.
  [[nodiscard]] bool has_hmm() const;
  [[nodiscard]] bool has_xnack() const;
  [[nodiscard]] std::uint64_t free_bytes(int device) const;
  [[nodiscard]] bool empty() const;

  /// Counts memory as used, until keep(): an error before it leaves nothing counted. Throws std::bad_alloc if
  /// the device or the host does not have that much left.
  [[nodiscard]] charge charged(int device, std::uint64_t bytes);
  void credit(int device, std::uint64_t bytes) { at(device).used_bytes -= bytes; }

  /// A number that no other object ever has, and that faults when used as an address.
  [[nodiscard]] std::uint64_t new_id() { return next_id_ += 16; }

  /// BUFFER_ID of hipPointerGetAttribute: no other memory of this process ever has it.
  [[nodiscard]] std::uint32_t new_buffer_id() { return ++last_buffer_id_; }

  /// The name of a device's memory (or host_device's) in all processes, and the device for a name:
  /// `otherwise` if this process does not see that device.
  [[nodiscard]] std::string owner_name(int device) const;
  [[nodiscard]] int owner_named(const std::string& owner, int otherwise) const;

  /// Memory that the caller has charged.
  [[nodiscard]] std::shared_ptr<physical> take_memory(int device, std::uint64_t bytes, bool file_of_its_own);
  /// The memory with an identity, if this process knows it already; charged again if it was released.
  [[nodiscard]] std::shared_ptr<physical> known_memory(std::uint64_t identity);
  /// Memory that this process has released, while a process still has a descriptor or an import of it.
  [[nodiscard]] std::vector<const physical*> exported_memory() const;
  [[nodiscard]] std::uint64_t add_allocation(std::shared_ptr<physical> memory,
                                             const allocation_properties& p);
  /// Drops one of the program's references; the memory is freed with the last reference or mapping.
  void drop_reference(std::uint64_t id);
  /// Drops `count` successive pieces without a hole between them. Throws std::bad_alloc, and drops none then,
  /// if the kernel cannot hide them from the CPU.
  void drop_mappings(std::map<std::uintptr_t, mapping>::iterator first, std::size_t count,
                     bool keep_reservation_busy);
  /// Maps or hides a piece for the CPU, according to the granted rights. Throws std::bad_alloc.
  void update_cpu_view(std::uintptr_t address, mapping& piece);
  [[nodiscard]] const physical& memory_of(const mapping& piece) const {
    return *allocations.at(piece.allocation).memory;
  }
  /// The device whose memory the library takes a piece for: of imported memory, the one it reports.
  [[nodiscard]] int reported_device(const mapping& piece) const;
  /// Whether a device has peer access to this one.
  [[nodiscard]] bool is_reached(int device) const;

  /// The file of device memory alone, made now if its bytes still lie in the device's.
  [[nodiscard]] const memory_file& own_file(std::uintptr_t address, block& owner);
  [[nodiscard]] const memory_file& own_file(const mapping& piece);

  /// Gives device memory an address, and adds it; 0: there are no addresses left.
  [[nodiscard]] std::uintptr_t show_device_memory(block& fresh);
  void add_block(std::uintptr_t address, block fresh);
  void drop_block(std::map<std::uintptr_t, block>::iterator it);
  /// Drops registrations in a range that the kernel has just allocated: the program must have unmapped it.
  void forget_registered(std::uintptr_t address, std::uint64_t bytes);
  void drop_reservation(std::map<std::uintptr_t, reservation>::iterator it);

 private:
  void drop_mapping(std::map<std::uintptr_t, mapping>::iterator piece, bool keep_reservation_busy);
  void drop_if_unused(std::uint64_t id);
  /// Credits the memory, if this was the last reference to it.
  void drop_memory(std::shared_ptr<physical> memory);
  void forget_unshared_memory();
  /// The same, but of very many not each time.
  void forget_some_unshared_memory();
  /// What is free, where exported memory takes some that counts.
  template <class Counts>
  [[nodiscard]] std::uint64_t free_beside(int device, const Counts& counts) const;
  /// Frees exported memory, or keeps it while a descriptor of it is open.
  void drop_exported_block(block& gone);

  std::uint32_t last_buffer_id_ = 0;
  std::uint64_t next_id_ = 0x51a0'0000'0000'0000;  // not canonical: dereferencing one faults
  std::unordered_map<std::uint64_t, std::weak_ptr<physical>> by_identity_;
  std::set<std::uintptr_t> registered_;              // blocks of that kind
  std::uint64_t longest_registered_bytes_ = 0;       // the longest ever registered
  std::vector<std::shared_ptr<physical>> exported_;  // not in used_bytes: nothing reports when it is freed
  std::size_t still_exported_ = 0;                   // of them, when it was last asked
};

}  // namespace hipsim
