#include "readings.hpp"

#include <algorithm>

#include "queries.hpp"

namespace hipplan {
namespace {

struct reader {
  const journal& owner;
  hip::runtime& runtime;
  const std::vector<device_id>& devices;
  readings out{};

  void note(std::uint64_t current, std::uint64_t desired) {
    out.values.push_back(current);
    out.as_desired = out.as_desired && current == desired;
  }
  void operator()(const allocation_reading& one) {
    const auto have = properties_of(runtime, owner.handle(one.entry));
    const auto& want = one.desired;
    // Host memory has no device: a runtime may tell any.
    const bool on_device = want.location_type == hip::hipMemLocationTypeDevice;
    const auto device = static_cast<std::uint64_t>(have.location_id);
    // CUDA tells host memory by its NUMA node, asked for or not.
    const bool host = want.location_type == hip::hipMemLocationTypeHost &&
                      have.location_type == hip::hipMemLocationTypeHostNuma;
    note(host ? want.location_type : have.location_type, want.location_type);
    note(device, on_device ? static_cast<std::uint64_t>(want.location_id) : device);
    note(have.type, want.type);
    note(have.handle_type, want.handle_type);
  }
  void operator()(const mapping_reading& one) {
    const auto address = owner.address(one.entry);
    const auto [base, size_bytes] = address_range_of(runtime, address);
    note(address, address);
    note(base, address);
    note(size_bytes, one.size_bytes);
  }
  void operator()(const access_reading& one) {
    const auto address = owner.address(one.entry);
    for (const auto device : devices) {
      const auto right = std::ranges::find_if(one.desired, [&](const auto& named) {
        return named.location.type == hip::hipMemLocationTypeDevice && named.location.id == device.value;
      });
      note(access(runtime, device, address),
           right == one.desired.end() ? hip::hipMemAccessFlagsProtNone : right->flags);
    }
  }
};

}  // namespace

readings read_back(const journal& owner, hip::runtime& runtime, const std::vector<reading>& wanted,
                   const std::vector<device_id>& devices) {
  reader all{owner, runtime, devices};
  for (const auto& one : wanted) std::visit(all, one);
  return std::move(all.out);
}

}  // namespace hipplan
