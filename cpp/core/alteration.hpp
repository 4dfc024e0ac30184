// An alteration of an object that stays, and how to undo it.
//
// It owns nothing: release() restores the object; its destructor changes nothing.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "hip/error.hpp"
#include "plan_name.hpp"

namespace hipplan {

class alteration {
 public:
  /// back: restores the object; throws hip_error if the driver refuses.
  alteration(plan_name name, std::string identity, std::function<void()> back)
      : name_(std::move(name)), identity_(std::move(identity)), back_(std::move(back)) {}

  alteration(alteration&&) noexcept = default;
  alteration& operator=(alteration&&) = delete;

  /// It was undone, or undoing it failed.
  [[nodiscard]] bool empty() const noexcept { return !back_; }
  /// Undoes it. Throws hip_error, and is empty then too. It may be called again if the caller had no memory
  /// to report the error: until mark_reported() it throws the same error, without a driver call.
  void release() {
    if (failure_) throw hip::hip_error(*failure_);
    try {
      back_();
    } catch (const hip::hip_error& error) {
      failure_ = std::make_unique<hip::hip_error>(error);
      back_ = nullptr;
      throw;
    }
    back_ = nullptr;
  }
  [[nodiscard]] bool has_unreported_failure() const noexcept { return failure_ != nullptr; }
  void mark_reported() noexcept {
    back_ = nullptr;
    failure_.reset();
  }
  [[nodiscard]] const std::string& name() const noexcept { return name_.text(); }
  [[nodiscard]] const std::string& identify() const noexcept { return identity_; }

 private:
  plan_name name_;
  std::string identity_;
  std::function<void()> back_;
  std::unique_ptr<hip::hip_error> failure_;  ///< until it is reported
};

}  // namespace hipplan
