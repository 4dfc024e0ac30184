// Queries of what is at an address.
#pragma once

#include <optional>

#include "devices.hpp"

namespace hipcuda {

struct pointer_facts {
  unsigned int type = 0;  ///< CUmemorytype; 0: the driver does not know the address
  unsigned int is_managed = 0;
  int device = hipInvalidDeviceId;
  CUdeviceptr on_device = 0;  ///< 0 also if the current device has no access
  void* on_host = nullptr;
};

[[nodiscard]] pointer_facts ask_about(const void* ptr);

struct mapped_piece {
  CUdeviceptr base = 0;
  std::size_t size = 0;
};

/// The mapping at an address, whatever its access; empty if nothing is mapped.
[[nodiscard]] std::optional<mapped_piece> piece_at(CUdeviceptr address);

/// Enforces HIP 7's rule for unmapping and access: whole mappings, without a hole between them. CUDA would
/// unmap across any hole and set access across a hole between mappings. Throws InvalidValue.
void require_whole_pieces(const void* ptr, std::size_t size);

/// Throws InvalidValue if a range exceeds the allocation that contains its first address. Accepts memory that
/// the driver does not know: the call that follows will fail.
void require_inside_allocation(const void* ptr, std::size_t size);

}  // namespace hipcuda
