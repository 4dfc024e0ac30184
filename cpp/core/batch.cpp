#include "batch.hpp"

#include <algorithm>
#include <stdexcept>

#include "scoped_device.hpp"

namespace hipplan {

/// Holds the journal for all of a batch.
class batch_runner {
 public:
  batch_runner(journal& into, std::vector<batch_step> steps)
      : owner_(into), lock_(into.mutex_), owners_(std::make_shared<std::vector<owner>>(made_by(steps))) {
    ready_.reserve(steps.size());
    calls_.reserve(steps.size());
    made_.reserve(steps.size());
    for (auto& step : steps) {
      std::visit([&](auto& one) { get_ready(ready_.emplace_back(), std::move(one)); }, step);
      calls_.push_back(call_of(ready_.back()));
    }
    owner_.make_room(steps.size());
  }
  batch_runner(const batch_runner&) = delete;
  batch_runner& operator=(const batch_runner&) = delete;

  ~batch_runner() { hand_over(); }

  void run(std::chrono::steady_clock::time_point until) {
    deadline stop(until);
    while (done_ < ready_.size() && !stop.over()) {
      if (const auto size = row_size()) {
        run_row(size, stop);
      } else {
        make(ready_[done_]);
        ++done_;
        stop.call_made();
      }
    }
  }

  /// The journal takes in what was made; as long as this holds its lock nobody else can look. Gives an entry
  /// for each step that is done, 0 where it made nothing.
  [[nodiscard]] std::vector<entry_id> take_made() noexcept {
    hand_over();
    return std::move(made_);
  }

 private:
  using owner = journal::owner;

  void hand_over() noexcept {
    for (; handed_ < done_; ++handed_) {
      auto& made = ready_[handed_].made;
      made_.push_back(made ? owner_.take_in(std::move(made)) : 0);
    }
  }

  /// A step with all it needs but the driver call.
  struct ready_step {
    journal::owner_ptr made;  ///< what will own the object; null: rights are set
    device_id device{-1};     ///< that must be current; -1: any
    bool is_buffer = false;
    const allocation* memory = nullptr;  ///< to map
    const mapping* mapped = nullptr;     ///< to set rights on
    std::span<const hip::hipMemAccessDesc> rights;
    bool together = false;  ///< on all that is mapped in the range then
  };

  static std::size_t made_by(const std::vector<batch_step>& steps) {
    return static_cast<std::size_t>(std::ranges::count_if(
        steps, [](const auto& step) { return !std::holds_alternative<access_step>(step); }));
  }
  journal::owner_ptr next_owner() noexcept { return {owners_, &(*owners_)[taken_++]}; }

  void get_ready(ready_step& out, create_step&& step) {
    const auto& where = step.properties;
    if (where.location_type == hip::hipMemLocationTypeDevice) out.device = {where.location_id};
    out.made = next_owner();
    out.made->emplace<allocation>(owner_.runtime(), std::move(step.name), step.size_bytes, where);
  }
  void get_ready(ready_step& out, map_step&& step) {
    out.memory = &owner_.get<allocation>(step.memory);
    out.made = next_owner();
    last_ = &out.made->emplace<mapping>(owner_.runtime(), std::move(step.name),
                                        owner_.get<address_range>(step.range), step.offset_bytes,
                                        step.size_bytes);
  }
  void get_ready(ready_step& out, access_step&& step) {
    out.mapped = step.mapping == 0 ? last_ : &owner_.get<mapping>(step.mapping);
    if (!out.mapped) throw std::out_of_range("rights on nothing: no step of this batch maps anything before");
    out.rights = step.rights;
    out.together = step.together;
  }
  void get_ready(ready_step& out, buffer_step&& step) {
    out.device = step.device;
    out.is_buffer = true;
    out.made = next_owner();
    out.made->emplace<device_buffer>(owner_.runtime(), std::move(step.name), step.device, step.size_bytes);
  }

  /// How many of the next steps are one plain call each with the same device current.
  std::size_t row_size() {
    if (!is_plain_) return 0;
    std::size_t size = 0;
    for (const auto& step : std::span(ready_).subspan(done_)) {
      if (step.is_buffer || (size > 0 && needs_another(step.device))) break;
      make_current(step.device);
      ++size;
    }
    return size;
  }
  void run_row(std::size_t size, deadline& stop) {
    const auto row = std::span(calls_).subspan(done_, size);
    const auto outcome = make_row(owner_.runtime(), row, stop);
    for (const auto& call : row.first(outcome.done)) take_answer(ready_[done_++], call, hip::hipSuccess);
    if (outcome.thrown) std::rethrow_exception(outcome.thrown);
    if (outcome.result != hip::hipSuccess) take_answer(ready_[done_], row[outcome.done], outcome.result);
  }

  static driver_call call_of(const ready_step& step) {
    if (step.is_buffer) return {};
    if (!step.made) return step.mapped->setting_access(step.rights, step.together);
    if (step.memory) return std::get<mapping>(*step.made).making(*step.memory);
    return std::get<allocation>(*step.made).making();
  }
  /// Throws what the step failed with.
  static void take_answer(const ready_step& step, const driver_call& call, hip::hipError_t result) {
    if (!step.made) return step.mapped->access_set(step.rights, result);
    if (step.memory) return std::get<mapping>(*step.made).made(*step.memory, result);
    std::get<allocation>(*step.made).made(call, result);
  }
  /// By itself.
  void make(const ready_step& step) {
    make_current(step.device);
    if (!step.made) return step.mapped->set_access(step.rights, step.together);
    if (step.memory) return std::get<mapping>(*step.made).make(*step.memory);
    if (auto* const memory = std::get_if<allocation>(step.made.get())) return memory->make();
    std::get<device_buffer>(*step.made).make();
  }

  [[nodiscard]] bool needs_another(device_id wanted) const {
    return wanted.value >= 0 && !(current_ && device_ == wanted);
  }
  /// One scope for all steps in a row on a device: asking which one is current costs a call each time.
  void make_current(device_id wanted) {
    if (!needs_another(wanted)) return;
    current_.reset();
    current_.emplace(owner_.runtime(), wanted);
    device_ = wanted;
  }

  journal& owner_;
  std::unique_lock<std::mutex> lock_;
  std::shared_ptr<std::vector<journal::owner>> owners_;  ///< for all steps that make something
  std::size_t taken_ = 0;                                ///< of them
  std::vector<ready_step> ready_;
  std::vector<driver_call> calls_;  ///< of each step
  const bool is_plain_ = mapping::is_plain(owner_.runtime());
  std::size_t done_ = 0;
  std::size_t handed_ = 0;  ///< of those that are done: the journal's
  std::vector<entry_id> made_;
  const mapping* last_ = nullptr;
  std::optional<scoped_device> current_;
  device_id device_{-1};
};

batch_outcome run_batch(journal& owner, std::vector<batch_step> steps,
                        std::chrono::steady_clock::time_point until) {
  batch_outcome out;
  batch_runner batch(owner, std::move(steps));
  try {
    batch.run(until);
  } catch (const hip::hip_error& error) {
    out.failure = error;
  }
  out.made = batch.take_made();
  return out;
}

}  // namespace hipplan
