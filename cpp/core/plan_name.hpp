// An object's name in the plan.
#pragma once

#include <memory>
#include <string>
#include <utility>

namespace hipplan {

/// A shared text. There are thousands of owners: with a string each, freeing them left thousands of small
/// pieces in the heap, and the next large free(), which joins such pieces, took longer than anything but the
/// driver calls.
class plan_name {
 public:
  /// A text of its own. Implicit, so that callers can pass a string.
  plan_name(std::string text) : text_(std::make_shared<const std::string>(std::move(text))) {}
  /// An entry of a table, which lives as long as any of its names.
  explicit plan_name(std::shared_ptr<const std::string> text) noexcept : text_(std::move(text)) {}

  [[nodiscard]] const std::string& text() const noexcept { return *text_; }

 private:
  std::shared_ptr<const std::string> text_;
};

}  // namespace hipplan
