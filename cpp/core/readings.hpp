// Reads many objects back from HIP at once, and compares them with their rows.
#pragma once

#include <cstdint>
#include <vector>

#include "rows.hpp"

namespace hipplan {

struct readings {
  std::vector<std::uint64_t> values;  ///< row by row
  bool as_desired = true;
};

/// Reads rows that create allocations (hipMemGetAllocationPropertiesFromHandle: location type, device, type,
/// handle type), map (hipMemGetAddressRange: the address queried, base, size) and set rights (hipMemGetAccess
/// of each device); other rows have no values. Throws hip_error if a query fails, std::out_of_range for an
/// empty slot.
[[nodiscard]] readings read_back(const snapshot& of, const row_table& rows,
                                 const std::vector<device_id>& devices);

}  // namespace hipplan
