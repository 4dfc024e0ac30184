// An alteration of an object that stays, and how to take it back.
//
// It owns nothing: given back, it restores the object; dropped, it changes nothing.
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

  /// Taken back, or tried.
  [[nodiscard]] bool empty() const noexcept { return !back_; }
  /// Takes it back. Throws hip_error, and is empty then too. Where there is no memory for the error's words
  /// it may be called again; so it may where it failed, until told(), and only tells.
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
  [[nodiscard]] bool untold() const noexcept { return failure_ != nullptr; }
  void told() noexcept {
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
