// What HIP tells of many objects, read and compared with their rows in one go.
#pragma once

#include <cstdint>
#include <vector>

#include "rows.hpp"

namespace hipplan {

struct readings {
  std::vector<std::uint64_t> values;  ///< of one row after the other
  bool as_desired = true;
};

/// Of the rows that create allocations (hipMemGetAllocationPropertiesFromHandle: location type, device, type,
/// handle type), map (hipMemGetAddressRange: the address asked, base, size) and set rights (hipMemGetAccess
/// of each device); nothing of the others. Throws hip_error if a query fails, std::out_of_range for a slot
/// that is empty.
[[nodiscard]] readings read_back(const snapshot& of, const row_table& rows,
                                 const std::vector<device_id>& devices);

}  // namespace hipplan
