// Rows: a program's driver calls as plain data. Each makes one object, which fills a slot, or alters the
// object in a slot.
//
// A row refers to other objects by their slots. A row that alters an object that stays also has the old
// values, so that a roll back can restore them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "buffer_kinds.hpp"
#include "snapshot.hpp"

namespace hipplan {

using rights = std::span<const hip::hipMemAccessDesc>;  ///< points into the row_table

// Rows that make an object.
struct link_peer {
  device_id device;
  device_id peer;
};
struct create_allocation {
  std::size_t size_bytes;
  allocation_properties properties;
};
struct import_allocation {
  std::size_t size_bytes;
  device_id device;  ///< current in the call, because HIP takes the memory for that device's; negative: any
};
struct reserve_range {
  std::size_t size_bytes;  ///< without the slack
  std::size_t alignment_bytes;
  std::size_t slack_bytes;  ///< in addition, so that an aligned base fits: HIP checks the alignment, but may
                            ///< ignore it
  std::uintptr_t wanted;
  bool exact;
};
struct map_memory {
  slot_id range;
  std::size_t offset_bytes;  ///< from the range's aligned base
  slot_id memory;
  std::size_t size_bytes;
};
struct create_stream {
  device_id device;
};

// Rows that alter an object.
struct set_rights {
  rights now;
  std::optional<rights> before;  ///< of a mapping that stays
  bool together;                 ///< on everything that is mapped in the range by then
};
struct unmap_memory {
  slot_id memory;
  rights before;
  bool together;
};
struct advise_range {
  std::size_t offset_bytes;
  std::size_t size_bytes;
  std::pair<hip::hipMemoryAdvise, device_id> now;
  std::optional<std::pair<hip::hipMemoryAdvise, device_id>> before;  ///< of a buffer that stays
};
struct prefetch_range {
  std::size_t offset_bytes;
  std::size_t size_bytes;
  device_id device;
  slot_id stream;  ///< no_slot: the null stream of `on`
  device_id on;
};
struct attach_stream {
  slot_id stream;
  unsigned flags;
  device_id on;
};
struct await_stream {  // the row's slot is the stream's; no_slot: the null stream of `on`
  device_id on;
};
struct copy_memory {  // the row's slot is the target mapping's
  device_id device;
  slot_id source;
  device_id source_device;
  std::size_t size_bytes;
};

struct row {
  using makers =
      types<link_peer, create_allocation, import_allocation, reserve_range, map_memory, create_stream>;
  using alterations =
      types<set_rights, unmap_memory, advise_range, prefetch_range, attach_stream, await_stream, copy_memory>;

  plan_name name;
  slot_id slot;
  joined<makers, buffer_rows, alterations>::rows what;

  /// Whether it fills its slot.
  [[nodiscard]] bool makes() const noexcept { return what.index() < makers::size + buffer_rows::size; }
};

/// Rows and the rights that they point to: thousands of mappings mostly share the same rights.
struct row_table {
  std::vector<row> rows;
  std::vector<std::unique_ptr<std::vector<hip::hipMemAccessDesc>>> rights;
};
using row_table_ptr = std::shared_ptr<const row_table>;

/// What the caller passes for a row that imports memory or registers the caller's.
struct binding {
  std::size_t row;
  int descriptor = -1;                  ///< to import; it stays the caller's
  std::shared_ptr<host_memory> memory;  ///< to register
};

}  // namespace hipplan
