// The base of every owner of a HIP object.
//
// An owner is created empty, with its name, in its final place, and only then filled by make(), a single
// driver call. Nothing allocates host memory between that call and the owner, so no failed allocation can
// lose the object. An owner is move-only and frees its object in one of two ways: release(), which throws,
// and the destructor, which only reports to the leak log. It is empty after either, even if the driver fails.
// The error of a failed release is kept until mark_reported(): if there is no memory to report it, release()
// is called again, and throws the same error without a driver call. In a forked child and after shutdown an
// owner drops its object without a driver call.
//
// The kinds that plans have by the thousand also describe their calls as data (make_call(), release_call())
// and take the results (take_make_result(), take_release_result()), for batches: see driver_call.hpp.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "hip/runtime.hpp"
#include "leak_log.hpp"
#include "plan_name.hpp"
#include "units.hpp"

namespace hipplan {

using runtime_ptr = std::shared_ptr<hip::runtime>;

class owned {
 public:
  owned(owned&& other) noexcept
      : runtime_(other.runtime_),
        name_(std::move(other.name_)),
        full_(std::exchange(other.full_, false)),
        failure_(std::exchange(other.failure_, hip::hipSuccess)) {}
  owned& operator=(owned&&) = delete;

  [[nodiscard]] bool empty() const noexcept { return !full_; }
  /// Whether a release has failed and is not reported yet.
  [[nodiscard]] bool has_unreported_failure() const noexcept { return failure_ != hip::hipSuccess; }
  /// Forgets the failure: nothing more is tried.
  void mark_reported() noexcept {
    full_ = false;
    failure_ = hip::hipSuccess;
  }
  /// The object's name in the plan.
  [[nodiscard]] const std::string& name() const noexcept { return name_.text(); }
  [[nodiscard]] const plan_name& shared_name() const noexcept { return name_; }

 protected:
  /// Empty until fill().
  owned(hip::runtime& runtime, plan_name name) : runtime_(&runtime), name_(std::move(name)) {}
  ~owned() = default;

  void fill() noexcept { full_ = true; }

  [[nodiscard]] hip::runtime& runtime() const noexcept { return *runtime_; }

  /// Makes it empty without a driver call.
  void abandon() noexcept { full_ = false; }
  /// Makes the call that frees the object; after a failure that is not reported yet, returns its error
  /// instead.
  template <class Call>
  [[nodiscard]] hip::hipError_t release_once(Call call) const {
    return has_unreported_failure() ? failure_ : call();
  }
  /// Stores the result of that call, and makes the owner empty. Throws hip_error; `words` as for check().
  template <class Words>
  void check_release(hip::hipError_t result, const char* call, Words words) {
    full_ = false;
    failure_ = result;
    runtime_->check(result, call, words);
  }

  /// The body of every owner's destructor.
  template <class Owner>
  static void destroy(Owner& owner) noexcept {
    if (owner.empty() && !owner.has_unreported_failure()) return;
    if (!owner.runtime_->may_call()) return owner.abandon();
    try {
      owner.release();
    } catch (const std::exception& error) {
      report_leak(std::string_view(error.what()));
    }
  }

 private:
  hip::runtime* runtime_;  ///< kept alive by the layout: thousands of shared_ptrs would cost time
  plan_name name_;
  bool full_ = false;
  hip::hipError_t failure_ = hip::hipSuccess;  ///< of a release
};

}  // namespace hipplan
