#include "mapping.hpp"

namespace hipplan {
namespace {

/// From here on hipMemMap says when it failed. Before, it reports success whatever happened. Which release of
/// the line from 7.11 on was the first is not certain: an unneeded query costs a call, a missing one may
/// crash.
constexpr int first_that_reports_failures = 71'400'000;

}  // namespace

void mapping::made(const allocation& memory, hip::hipError_t result) {
  pieces_->mapped(result == hip::hipSuccess);
  runtime().check(result, "hipMemMap",
                  [&] { return std::pair("mapping '" + name() + "' of " + memory.identify(), placed()); });
  fill();
}

void mapping::release() {
  if (!empty() && !releases_plainly() && never_mapped(runtime())) {
    abandon();
    pieces_->remove(address_);
    return;
  }
  released(once([&] { return releasing().make(runtime()); }));
}

void mapping::released(hip::hipError_t result) {
  answered(result, "hipMemUnmap", [&] { return std::pair(identify(), placed()); });
  pieces_->remove(address_);
}

void mapping::access_set(std::span<const hip::hipMemAccessDesc> rights, hip::hipError_t result) const {
  runtime().check(result, "hipMemSetAccess", [&] {
    return std::pair(identify(), placed() + ", count=" + std::to_string(rights.size()));
  });
  proven_ = true;
}

std::string mapping::placed() const {
  return "ptr=" + hexadecimal(address_) + ", size=" + std::to_string(size_bytes_);
}

bool mapping::releases_plainly() const noexcept {
  return proven_ || runtime().version() >= first_that_reports_failures;
}

bool mapping::never_mapped(hip::runtime& runtime) const {
  void* base = nullptr;
  std::size_t size_bytes = 0;
  const auto found = runtime.hipMemGetAddressRange(&base, &size_bytes, reinterpret_cast<void*>(address_));
  if (found != hip::hipSuccess) runtime.forget_last_error();
  return found == hip::hipErrorNotFound;
}

void mapping::take_out() {
  runtime().check(releasing().make(runtime()), "hipMemUnmap",
                  [&] { return std::pair(identify(), placed()); });
  abandon();
  proven_ = false;  // the next mapping here is checked again
  pieces_->remove(address_);
}

std::string mapping::identify() const {
  return "mapping '" + name() + "' of " + std::to_string(size_bytes_) + " bytes at " + hexadecimal(address_);
}

}  // namespace hipplan
