#include "mapping.hpp"

namespace hipplan {
namespace {

/// From here on hipMemMap says when it failed. Before, it reports success whatever happened.
constexpr int first_that_reports_failures = 71'100'000;

}  // namespace

mapping mapping::map(runtime_ptr runtime, std::string name, const address_range& range,
                     std::size_t offset_bytes, const allocation& memory, std::size_t size_bytes) {
  const auto address = range.address() + offset_bytes;
  range.pieces_->expect(*runtime, address, size_bytes);
  const auto result = runtime->hipMemMap(reinterpret_cast<void*>(address), size_bytes, 0, memory.get(), 0);
  range.pieces_->mapped(address, result == hip::hipSuccess);
  runtime->check(result, "hipMemMap", [&] {
    return std::pair("mapping '" + name + "' of " + memory.identify(),
                     "ptr=" + hexadecimal(address) + ", size=" + std::to_string(size_bytes));
  });
  return {std::move(runtime), std::move(name), address, size_bytes, range.pieces_};
}

void mapping::release() {
  const auto runtime = take();
  if (never_mapped(*runtime)) {
    pieces_->remove(address_);
    return;
  }
  const auto result = runtime->hipMemUnmap(reinterpret_cast<void*>(address_), size_bytes_);
  runtime->check(result, "hipMemUnmap", [&] {
    return std::pair(identify(), "ptr=" + hexadecimal(address_) + ", size=" + std::to_string(size_bytes_));
  });
  pieces_->remove(address_);
}

bool mapping::never_mapped(hip::runtime& runtime) const {
  if (proven_ || runtime.version() >= first_that_reports_failures) return false;
  void* base = nullptr;
  std::size_t size_bytes = 0;
  const auto found = runtime.hipMemGetAddressRange(&base, &size_bytes, reinterpret_cast<void*>(address_));
  if (found != hip::hipErrorNotFound) return false;
  runtime.forget_last_error();
  return true;
}

void mapping::take_out() {
  const auto result = runtime().hipMemUnmap(reinterpret_cast<void*>(address_), size_bytes_);
  runtime().check(result, "hipMemUnmap", identify(),
                  "ptr=" + hexadecimal(address_) + ", size=" + std::to_string(size_bytes_));
  (void)take();
  pieces_->remove(address_);
}

void mapping::set_access(hip::runtime& runtime, std::span<const hip::hipMemAccessDesc> rights) const {
  const auto result = pieces_->set_access(runtime, address_, size_bytes_, rights);
  runtime.check(result, "hipMemSetAccess", [&] {
    return std::pair(identify(), "ptr=" + hexadecimal(address_) + ", size=" + std::to_string(size_bytes_) +
                                     ", count=" + std::to_string(rights.size()));
  });
  proven_ = true;
}

std::string mapping::identify() const {
  return "mapping '" + name() + "' of " + std::to_string(size_bytes_) + " bytes at " + hexadecimal(address_);
}

}  // namespace hipplan
