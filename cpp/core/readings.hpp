// Reads many objects back from HIP at once, and compares them with their rows.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "rows.hpp"

namespace hipplan {

/// A value that is not what its row asks for.
struct wrong_reading {
  std::size_t row;
  std::uint64_t current;
  std::uint64_t desired;
};

struct readings {
  std::vector<std::uint64_t> values;   ///< row by row
  std::optional<wrong_reading> wrong;  ///< the first one
};

/// Reads rows that create allocations (hipMemGetAllocationPropertiesFromHandle: location type, device, type,
/// handle type), map (hipMemGetAddressRange: the address queried, base, size) and set rights (hipMemGetAccess
/// of each device); other rows have no values. Throws hip_error if a query fails, std::out_of_range for an
/// empty slot.
[[nodiscard]] readings read_back(const snapshot& of, const row_table& rows,
                                 const std::vector<device_id>& devices);

}  // namespace hipplan
