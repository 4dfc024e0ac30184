// What every owner of a HIP object shares.
//
// An owner is created empty, with its name, put where it stays, and only then filled by make(), the one
// driver call: between that call and the owner nothing asks for memory, so nothing that is refused can lose
// the object. It moves only, and has two exits: release(), which throws, and the destructor, which only
// reports to the leak log. It is empty after either, whatever the driver says. What it says to a release
// stays until told() where it is a failure: if there is no memory for the error's words, release() is called
// again and only tells. In a forked child and after shutdown an owner drops what it holds without a driver
// call.
//
// The kinds that come by the thousand also hand their calls out as data (making(), releasing()) and take the
// answers (made(), released()), for rows of them: see driver_call.hpp.
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
  /// Whether a release failed that is not reported yet.
  [[nodiscard]] bool untold() const noexcept { return failure_ != hip::hipSuccess; }
  /// It is: nothing more is tried.
  void told() noexcept {
    full_ = false;
    failure_ = hip::hipSuccess;
  }
  /// The name the plan gives to the object.
  [[nodiscard]] const std::string& name() const noexcept { return name_.text(); }
  [[nodiscard]] const plan_name& shared_name() const noexcept { return name_; }

 protected:
  /// Empty until fill().
  owned(hip::runtime& runtime, plan_name name) : runtime_(&runtime), name_(std::move(name)) {}
  ~owned() = default;

  void fill() noexcept { full_ = true; }

  [[nodiscard]] hip::runtime& runtime() const noexcept { return *runtime_; }

  /// Empty without a driver call.
  void abandon() noexcept { full_ = false; }
  /// Makes the one call that gives the object back; where it was made before, what it answered then.
  template <class Call>
  [[nodiscard]] hip::hipError_t once(Call call) const {
    return untold() ? failure_ : call();
  }
  /// The answer of that call. Throws hip_error; `words` as for check().
  template <class Words>
  void answered(hip::hipError_t result, const char* call, Words words) {
    full_ = false;
    failure_ = result;
    runtime_->check(result, call, words);
  }

  /// The body of every owner's destructor.
  template <class Owner>
  static void destroy(Owner& owner) noexcept {
    if (owner.empty() && !owner.untold()) return;
    if (!owner.runtime_->may_call()) return owner.abandon();
    try {
      owner.release();
    } catch (const std::exception& error) {
      report_leak(error.what());
    }
  }

 private:
  hip::runtime* runtime_;  ///< kept alive by the code that has the owner: a shared_ptr here would be counted
                           ///< by the thousand
  plan_name name_;
  bool full_ = false;
  hip::hipError_t failure_ = hip::hipSuccess;  ///< of a release
};

}  // namespace hipplan
