// What HIP tells of many objects after an apply, read and compared in one go.
#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "journal.hpp"

namespace hipplan {

/// hipMemGetAllocationPropertiesFromHandle; gives location type, device, type, handle type.
struct allocation_reading {
  entry_id entry;
  allocation_properties desired;
};

/// hipMemGetAddressRange; gives the address asked, base, size.
struct mapping_reading {
  entry_id entry;
  std::size_t size_bytes;
};

/// hipMemGetAccess of each device; gives the flags of each.
struct access_reading {
  entry_id entry;
  std::span<const hip::hipMemAccessDesc> desired;  ///< who is not named has none; the caller's
};

using reading = std::variant<allocation_reading, mapping_reading, access_reading>;

struct readings {
  std::vector<std::uint64_t> values;  ///< of one reading after the other
  bool as_desired = true;
};

/// Throws hip_error if a query fails.
[[nodiscard]] readings read_back(const journal& owner, hip::runtime& runtime,
                                 const std::vector<reading>& wanted, const std::vector<device_id>& devices);

}  // namespace hipplan
