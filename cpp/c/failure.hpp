// An error as the caller of hipplan.h gets it: a code of hipplan's diagnostics, and its text.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace hipplan::c {

/// One diagnostic, as of hipplan/errors.py.
struct diagnostic {
  int code;
  std::string summary;
  std::string why;
  std::string hint;
  std::string notes;  ///< lines, each with its line break

  /// As render_diagnostic() of hipplan/errors.py shows it.
  [[nodiscard]] std::string text() const {
    std::string out = "error[HP" + std::to_string(code) + "]: " + printable(summary);
    if (!why.empty()) out += "\n  why:  " + printable(why);
    if (!hint.empty()) out += "\n  hint: " + printable(hint);
    for (std::string_view rest = notes; !rest.empty();) {
      const auto end = rest.find('\n');
      out += "\n  " + printable(std::string(rest.substr(0, end)));
      rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
    }
    return out;
  }

 private:
  /// Another process may have sent it: control characters would move a terminal's cursor.
  static std::string printable(std::string text) {
    for (auto& letter : text) {
      const auto code_point = static_cast<unsigned char>(letter);
      if ((code_point < 0x20 && letter != '\t') || code_point == 0x7F) letter = '?';
    }
    return text;
  }
};

class failure : public std::runtime_error {
 public:
  explicit failure(diagnostic what) : std::runtime_error(what.summary), about(std::move(what)) {}
  diagnostic about;
};

/// HP458: the caller has made a mistake.
[[noreturn]] inline void refuse(std::string summary, std::string why = {}, std::string hint = {}) {
  throw failure({458, std::move(summary), std::move(why), std::move(hint), {}});
}

/// HP455.
[[noreturn]] inline void no_answer(const std::string& holder, std::string why) {
  throw failure({455,
                 "the holder '" + holder + "' does not answer",
                 std::move(why),
                 "its log may have the reason: hipplan ps shows where it is",
                 {}});
}

}  // namespace hipplan::c
