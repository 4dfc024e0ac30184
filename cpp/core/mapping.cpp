#include "mapping.hpp"

namespace hipplan {
namespace {

/// From this HIP version on hipMemMap reports failures; before, it always returns success. The true first one
/// may be an earlier release from 7.11 on: the later version is safe, because an unneeded query only costs a
/// call, while a missing one may crash.
constexpr int first_that_reports_failures = 71'400'000;

}  // namespace

void mapping::take_make_result(const allocation& memory, hip::hipError_t result) {
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
  take_release_result(release_once([&] { return release_call().make(runtime()); }));
}

void mapping::take_release_result(hip::hipError_t result) {
  check_release(result, "hipMemUnmap", [&] { return std::pair(identify(), placed()); });
  pieces_->remove(address_);
}

void mapping::take_access_result(std::span<const hip::hipMemAccessDesc> rights,
                                 hip::hipError_t result) const {
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
  const auto result = runtime.hipMemGetAddressRange(&base, &size_bytes, reinterpret_cast<void*>(address_));
  if (result != hip::hipSuccess) runtime.forget_last_error();
  return result == hip::hipErrorNotFound;
}

void mapping::unmap_for_restore() {
  runtime().check(release_call().make(runtime()), "hipMemUnmap",
                  [&] { return std::pair(identify(), placed()); });
  abandon();
  proven_ = false;  // the next mapping here is checked again
  pieces_->remove(address_);
}

void mapping::restore(const allocation& memory, std::span<const hip::hipMemAccessDesc> rights) {
  if (!empty() && proven_) return;
  if (!empty() && !releases_plainly() && never_mapped(runtime())) {
    abandon();
    pieces_->remove(address_);
  }
  if (empty()) make(memory);
  set_access(rights, false);
}

std::string mapping::identify() const {
  return "mapping '" + name() + "' of " + std::to_string(size_bytes_) + " bytes at " + hexadecimal(address_);
}

}  // namespace hipplan
