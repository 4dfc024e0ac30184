// What every owner of a HIP object shares.
//
// An owner is created or throws, moves only, and has two exits: release(), which throws, and the
// destructor, which only reports to the leak log. It is empty after either, and emptied before the error
// is raised. In a forked child and after shutdown an owner drops what it holds without a driver call.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "hip/runtime.hpp"
#include "leak_log.hpp"
#include "units.hpp"

namespace hipplan {

using runtime_ptr = std::shared_ptr<hip::runtime>;

class owned {
 public:
  owned(owned&&) noexcept = default;  // the other becomes empty
  owned& operator=(owned&&) = delete;

  [[nodiscard]] bool empty() const noexcept { return !runtime_; }
  /// The name the plan gives to the object.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 protected:
  owned(runtime_ptr runtime, std::string name) : runtime_(std::move(runtime)), name_(std::move(name)) {}
  ~owned() = default;

  /// For calls that change what is owned; not for an empty owner.
  [[nodiscard]] hip::runtime& runtime() const noexcept { return *runtime_; }

  /// Empties this owner and hands out the runtime for the one call that gives the object back.
  [[nodiscard]] runtime_ptr take() noexcept { return std::exchange(runtime_, nullptr); }

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
  runtime_ptr runtime_;
  std::string name_;
};

}  // namespace hipplan
