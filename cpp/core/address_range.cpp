#include "address_range.hpp"

namespace hipplan {

address_range address_range::reserve(hip::runtime& runtime, std::string name, std::size_t size_bytes,
                                     std::size_t alignment_bytes, std::uintptr_t wanted) {
  auto pieces = std::make_shared<range_pieces>();
  void* out = nullptr;
  const auto result =
      runtime.hipMemAddressReserve(&out, size_bytes, alignment_bytes, reinterpret_cast<void*>(wanted), 0);
  runtime.check(result, "hipMemAddressReserve", [&] {
    return std::pair("address range '" + name + "' of " + std::to_string(size_bytes) + " bytes",
                     "size=" + std::to_string(size_bytes) + ", alignment=" + std::to_string(alignment_bytes) +
                         ", addr=" + hexadecimal(wanted));
  });
  const auto address = reinterpret_cast<std::uintptr_t>(out);
  pieces->begin_at(address);
  return {runtime, std::move(name), address, size_bytes, std::move(pieces)};
}

void address_range::release() {
  const auto inside = pieces_->count();
  const auto free = [&] {
    return inside != 0 ? hip::hipErrorIllegalState
                       : runtime().hipMemAddressFree(reinterpret_cast<void*>(address_), size_bytes_);
  };
  answered(once(free), "hipMemAddressFree", [&] {
    return std::pair(identify(),
                     inside != 0
                         ? "not called: " + std::to_string(inside) + " mapping(s) inside are still mapped"
                         : "ptr=" + hexadecimal(address_) + ", size=" + std::to_string(size_bytes_));
  });
}

std::string address_range::identify() const {
  return "address range '" + name() + "' of " + std::to_string(size_bytes_) + " bytes at " +
         hexadecimal(address_);
}

}  // namespace hipplan
