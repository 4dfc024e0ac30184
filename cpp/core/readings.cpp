#include "readings.hpp"

#include <algorithm>

#include "queries.hpp"

namespace hipplan {
namespace {

struct reader {
  const snapshot& of;
  const std::vector<device_id>& devices;
  readings out{};
  std::size_t row = 0;

  void note(std::uint64_t current, std::uint64_t desired) {
    out.values.push_back(current);
    if (current != desired && !out.wrong) out.wrong = {row, current, desired};
  }
  void read(slot_id slot, const create_allocation& desired) {
    const auto have = properties_of(of.runtime(), of.handle(slot));
    const auto& want = desired.properties;
    // Host memory has no device: a runtime may report any.
    const bool on_device = want.location_type == hip::hipMemLocationTypeDevice;
    const auto device = static_cast<std::uint64_t>(have.location_id);
    // CUDA always reports host memory with its NUMA node, even if none was requested.
    const bool host = want.location_type == hip::hipMemLocationTypeHost &&
                      have.location_type == hip::hipMemLocationTypeHostNuma;
    note(host ? want.location_type : have.location_type, want.location_type);
    note(device, on_device ? static_cast<std::uint64_t>(want.location_id) : device);
    note(have.type, want.type);
    note(have.handle_type, want.handle_type);
    if (want.rdma) note(have.rdma, true);
  }
  void read(slot_id slot, const map_memory& desired) {
    const auto address = of.address(slot);
    const auto [base, size_bytes] = address_range_of(of.runtime(), address);
    note(address, address);
    note(base, address);
    note(size_bytes, desired.size_bytes);
  }
  void read(slot_id slot, const set_rights& desired) {
    const auto address = of.address(slot);
    for (const auto device : devices) {
      const auto right = std::ranges::find_if(desired.now, [&](const auto& named) {
        return named.location.type == hip::hipMemLocationTypeDevice && named.location.id == device.value;
      });
      note(access(of.runtime(), device, address),
           right == desired.now.end() ? hip::hipMemAccessFlagsProtNone : right->flags);
    }
  }
};

}  // namespace

readings read_back(const snapshot& of, const row_table& rows, const std::vector<device_id>& devices) {
  reader all{of, devices};
  for (const auto& next : rows.rows) {
    try {
      std::visit(
          [&](const auto& what) {
            if constexpr (requires { all.read(next.slot, what); }) all.read(next.slot, what);
          },
          next.what);
    } catch (const hip::hip_error& error) {  // which knows an address, or a handle
      throw hip::hip_error(error.code(), error.call(), "'" + next.name.text() + "', " + error.subject(),
                           error.arguments());
    }
    ++all.row;
  }
  return std::move(all.out);
}

}  // namespace hipplan
