// What every owner of a HIP object shares.
//
// An owner is created full or throws, moves only, and has two exits: release(), which throws, and the
// destructor, which only reports to the leak log. It is empty after either, and emptied before the error
// is raised. In a forked child and after shutdown an owner drops what it holds without a driver call.
//
// The kinds that come by the thousand are created empty, and filled by make(), the one driver call. They also
// hand that call out as data (making(), releasing()) and take its answer (made(), released()), for rows of
// them: see driver_call.hpp.
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
      : runtime_(other.runtime_), name_(std::move(other.name_)), full_(std::exchange(other.full_, false)) {}
  owned& operator=(owned&&) = delete;

  [[nodiscard]] bool empty() const noexcept { return !full_; }
  /// The name the plan gives to the object.
  [[nodiscard]] const std::string& name() const noexcept { return name_.text(); }

 protected:
  /// full: whether there is an object already; if not, fill() says when.
  owned(hip::runtime& runtime, plan_name name, bool full = true)
      : runtime_(&runtime), name_(std::move(name)), full_(full) {}
  ~owned() = default;

  void fill() noexcept { full_ = true; }

  [[nodiscard]] hip::runtime& runtime() const noexcept { return *runtime_; }

  /// Empties this owner and hands out the runtime for the one call that gives the object back.
  [[nodiscard]] hip::runtime& take() noexcept {
    full_ = false;
    return *runtime_;
  }

  /// The body of every owner's destructor.
  template <class Owner>
  static void destroy(Owner& owner) noexcept {
    if (owner.empty()) return;
    if (!owner.runtime_->may_call()) {
      (void)owner.take();
      return;
    }
    try {
      owner.release();
    } catch (const std::exception& error) {
      report_leak(error.what());
    }
  }

 private:
  hip::runtime*
      runtime_;  ///< whoever has the owner keeps it: a shared_ptr here would be counted by the thousand
  plan_name name_;
  bool full_;
};

}  // namespace hipplan
