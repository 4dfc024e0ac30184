// What a failed driver call looks like everywhere in hipplan: code, name, call, subject, arguments.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace hip {

/// A driver call that did not succeed.
class hip_error : public std::runtime_error {
 public:
  /// subject: the object the call was about, as its owner identifies itself.
  /// arguments: what was passed, for the message; may be empty.
  hip_error(std::uint32_t code, std::string call, std::string subject, std::string arguments = {});

  [[nodiscard]] std::uint32_t code() const noexcept { return code_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const std::string& call() const noexcept { return call_; }
  [[nodiscard]] const std::string& subject() const noexcept { return subject_; }
  [[nodiscard]] const std::string& arguments() const noexcept { return arguments_; }

 private:
  std::uint32_t code_;
  std::string name_;
  std::string call_;
  std::string subject_;
  std::string arguments_;
};

/// A library that cannot serve as a runtime: not found, not HIP, or too old.
class runtime_unusable : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace hip
