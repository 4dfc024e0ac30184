#include "batch.hpp"

#include "scoped_device.hpp"

namespace hipplan {
namespace {

struct runner {
  explicit runner(journal& given) : owner(given) {}

  journal& owner;
  entry_id last = 0;
  std::optional<scoped_device> current;
  device_id device{-1};

  /// One scope for all steps in a row on a device: asking which one is current costs a call each time.
  void on(device_id wanted) {
    if (current && device == wanted) return;
    current.reset();
    current.emplace(owner.runtime(), wanted);
    device = wanted;
  }

  entry_id operator()(create_step& step) {
    if (step.properties.location_type == hip::hipMemLocationTypeDevice) on({step.properties.location_id});
    return owner.create_allocation(std::move(step.name), step.size_bytes, step.properties);
  }
  entry_id operator()(map_step& step) const {
    return owner.map(std::move(step.name), step.range, step.offset_bytes, step.memory, step.size_bytes);
  }
  entry_id operator()(const access_step& step) const {
    owner.set_access(step.mapping == 0 ? last : step.mapping, step.rights);
    return 0;
  }
  entry_id operator()(buffer_step& step) {
    on(step.device);
    return owner.create_device_buffer(std::move(step.name), step.device, step.size_bytes);
  }
};

}  // namespace

batch_outcome run_batch(journal& owner, std::span<batch_step> steps) {
  batch_outcome out;
  out.made.reserve(steps.size());
  owner.prepare(steps.size());
  runner run(owner);
  try {
    for (auto& step : steps) {
      run.last = std::visit(run, step);
      out.made.push_back(run.last);
    }
  } catch (const hip::hip_error& error) {
    out.failure = error;
  }
  return out;
}

}  // namespace hipplan
