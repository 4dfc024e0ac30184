#include "batch.hpp"

#include "deadline.hpp"
#include "scoped_device.hpp"

namespace hipplan {

/// Holds the journal for all of a batch.
class batch_runner {
 public:
  batch_runner(journal& owner, entry_id last) : owner_(owner), lock_(owner.mutex_), last_(last) {}

  entry_id operator()(create_step& step) {
    if (step.properties.location_type == hip::hipMemLocationTypeDevice) on({step.properties.location_id});
    return last_ = owner_.create_locked(std::move(step.name), step.size_bytes, step.properties);
  }
  entry_id operator()(map_step& step) {
    return last_ = owner_.map_locked(std::move(step.name), step.range, step.offset_bytes, step.memory,
                                     step.size_bytes);
  }
  entry_id operator()(const access_step& step) {
    const auto& mapped = owner_.get<mapping>(step.mapping == 0 ? last_ : step.mapping);
    mapped.set_access(owner_.runtime(), step.rights);
    return 0;
  }
  entry_id operator()(buffer_step& step) {
    on(step.device);
    return last_ = owner_.add_locked([&](journal::owner& out) {
      out.emplace<device_buffer>(
          device_buffer::create(owner_.runtime_, std::move(step.name), step.device, step.size_bytes));
    });
  }

 private:
  /// One scope for all steps in a row on a device: asking which one is current costs a call each time.
  void on(device_id wanted) {
    if (current_ && device_ == wanted) return;
    current_.reset();
    current_.emplace(owner_.runtime(), wanted);
    device_ = wanted;
  }

  journal& owner_;
  std::unique_lock<std::mutex> lock_;
  entry_id last_;
  std::optional<scoped_device> current_;
  device_id device_{-1};
};

batch_outcome run_batch(journal& owner, std::span<batch_step> steps,
                        std::chrono::steady_clock::time_point until, entry_id last) {
  batch_outcome out;
  out.made.reserve(steps.size());
  owner.prepare(steps.size());
  batch_runner run(owner, last);
  try {
    deadline stop(until);
    for (auto& step : steps) {
      out.made.push_back(std::visit(run, step));
      if (stop.passed()) break;
    }
  } catch (const hip::hip_error& error) {
    out.failure = error;
  }
  return out;
}

}  // namespace hipplan
