// A change to an object that exists already, and how to take it back.
//
// It owns nothing: while it stands in a journal an undo takes the change back; dropping it keeps the change.
#pragma once

#include <functional>
#include <string>
#include <utility>

namespace hipplan {

class change {
 public:
  /// back: puts things as they were before; throws hip_error if the driver refuses.
  change(std::string name, std::string identity, std::function<void()> back)
      : name_(std::move(name)), identity_(std::move(identity)), back_(std::move(back)) {}

  /// Taken back, or tried.
  [[nodiscard]] bool empty() const noexcept { return !back_; }
  /// Takes the change back. Throws hip_error; empty in both cases.
  void release() { std::exchange(back_, nullptr)(); }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const std::string& identify() const noexcept { return identity_; }

 private:
  std::string name_;
  std::string identity_;
  std::function<void()> back_;
};

}  // namespace hipplan
