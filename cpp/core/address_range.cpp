#include "address_range.hpp"

namespace hipplan {

namespace {

std::string describe(const std::string& name, std::size_t size_bytes) {
  return "address range '" + name + "' of " + std::to_string(size_bytes) + " bytes";
}

}  // namespace

void address_range::make(std::uintptr_t wanted) {
  void* out = nullptr;
  const auto result =
      runtime().hipMemAddressReserve(&out, size_bytes_, alignment_bytes_, reinterpret_cast<void*>(wanted), 0);
  runtime().check(result, "hipMemAddressReserve", [&] {
    return std::pair(describe(name(), size_bytes_), "size=" + std::to_string(size_bytes_) +
                                                        ", alignment=" + std::to_string(alignment_bytes_) +
                                                        ", addr=" + hexadecimal(wanted));
  });
  address_ = reinterpret_cast<std::uintptr_t>(out);
  reserved_ranges::add(std::move(entry_), address_);
  fill();
}

void address_range::release() {
  const auto inside = pieces_->count();
  const auto free = [&] {
    return inside != 0 ? hip::hipErrorIllegalState
                       : runtime().hipMemAddressFree(reinterpret_cast<void*>(address_), size_bytes_);
  };
  check_release(release_once(free), "hipMemAddressFree", [&] {
    return std::pair(identify(),
                     inside != 0
                         ? "not called: " + std::to_string(inside) + " mapping(s) inside are still mapped"
                         : "ptr=" + hexadecimal(address_) + ", size=" + std::to_string(size_bytes_));
  });
  reserved_ranges::remove(address_);
}

std::string address_range::identify() const {
  return describe(name(), size_bytes_) + " at " + hexadecimal(address_);
}

}  // namespace hipplan
