// What the plan calls an object, as its owner keeps it.
#pragma once

#include <memory>
#include <string>
#include <utility>

namespace hipplan {

/// A text that is shared, not copied. Owners come by the thousand: with a string each, giving them back left
/// thousands of small pieces to the heap, and the next large free that put them together again took longer
/// than anything else beside the driver's calls.
class plan_name {
 public:
  /// A text of its own. Implicit, so that makers of one object need not name it.
  plan_name(std::string text) : text_(std::make_shared<const std::string>(std::move(text))) {}
  /// One of many in a table that lives as long as any of them.
  explicit plan_name(std::shared_ptr<const std::string> text) noexcept : text_(std::move(text)) {}

  [[nodiscard]] const std::string& text() const noexcept { return *text_; }

 private:
  std::shared_ptr<const std::string> text_;
};

}  // namespace hipplan
