#include "pointers.hpp"

#include <array>

namespace hipcuda {
namespace {

/// Several queries in one call, which returns nulls, not an error, for an unknown address.
template <std::size_t count>
void ask(CUdeviceptr address, std::array<CUpointer_attribute, count> attributes,
         std::array<void*, count> answers) {
  check(driver().cuPointerGetAttributes(count, attributes.data(), answers.data(), address));
}

}  // namespace

pointer_facts ask_about(const void* ptr) {
  pointer_facts facts;
  ask<5>(
      to_address(ptr),
      {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
       CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER},
      {&facts.type, &facts.is_managed, &facts.device, &facts.on_device, static_cast<void*>(&facts.on_host)});
  return facts;
}

std::optional<mapped_piece> piece_at(CUdeviceptr address) {
  mapped_piece piece;
  unsigned int is_mapped = 0;
  ask<3>(address,
         {CU_POINTER_ATTRIBUTE_MAPPED, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR,
          CU_POINTER_ATTRIBUTE_MAPPING_SIZE},
         {&is_mapped, &piece.base, &piece.size});
  if (!is_mapped || piece.size == 0) return std::nullopt;
  return piece;
}

void require_whole_pieces(const void* ptr, std::size_t size) {
  CUdeviceptr next = to_address(ptr);
  for (std::size_t left = size; left != 0;) {
    const auto piece = piece_at(next);
    if (!piece || piece->base != next || piece->size > left) fail(hipErrorInvalidValue);
    next += piece->size;
    left -= piece->size;
  }
}

void require_inside_allocation(const void* ptr, std::size_t size) {
  CUdeviceptr base = 0;
  std::size_t whole = 0;
  if (driver().cuMemGetAddressRange_v2(&base, &whole, to_address(ptr)) != CUDA_SUCCESS) return;
  require(size <= base + whole - to_address(ptr));
}

}  // namespace hipcuda
