// What the driver knows of an address.
#pragma once

#include <optional>

#include "devices.hpp"

namespace hipcuda {

struct pointer_facts {
  unsigned int type = 0;  ///< CUmemorytype; 0: the driver does not know the address
  unsigned int is_managed = 0;
  int device = hipInvalidDeviceId;
  CUdeviceptr on_device = 0;  ///< 0 also where the current device has no access
  void* on_host = nullptr;
};

[[nodiscard]] pointer_facts ask_about(const void* ptr);

struct mapped_piece {
  CUdeviceptr base = 0;
  std::size_t size = 0;
};

/// The mapping at an address, whatever its access; empty if nothing is mapped.
[[nodiscard]] std::optional<mapped_piece> piece_at(CUdeviceptr address);

/// HIP 7's rule for unmapping and access: whole mappings, one after the other without a hole. CUDA unmaps
/// across any hole and sets access across one between mappings. Throws InvalidValue.
void require_whole_pieces(const void* ptr, std::size_t size);

/// Throws InvalidValue past the end of the allocation at an address. Of memory that the driver does not know
/// the call that follows tells.
void require_inside_allocation(const void* ptr, std::size_t size);

}  // namespace hipcuda
