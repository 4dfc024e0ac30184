// Reads JSON as it goes: nothing is kept but what the caller takes, so a hostile text costs no memory.
//
//   reader.begin_object();
//   for (std::string key; reader.next_key(key);) key == "number" ? use(reader.number()) : reader.skip();
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace hipplan::c {

/// A text that is no JSON, or not what is expected.
class wrong_text : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Each function throws wrong_text where something else follows.
class json_reader {
 public:
  explicit json_reader(std::string_view text) : text_(text) {}

  void begin_object() { begin('{'); }
  /// False at the end of the object.
  [[nodiscard]] bool next_key(std::string& key);
  void begin_array() { begin('['); }
  /// False at the end of the array.
  [[nodiscard]] bool next_item() { return next(']'); }
  /// For arrays of a fixed length.
  void item() {
    if (!next_item()) throw wrong_text("a list is too short");
  }
  void end_array() {
    if (next_item()) throw wrong_text("a list is too long");
  }

  /// Without a zero in it, so that it is a text for C.
  [[nodiscard]] std::string text();
  [[nodiscard]] std::int64_t integer();
  /// Not negative.
  [[nodiscard]] std::uint64_t number();
  [[nodiscard]] bool boolean();
  /// Whether null follows; takes it.
  [[nodiscard]] bool null() { return take("null"); }
  /// Passes over one value of any kind.
  void skip();
  /// Nothing may follow.
  void end();

 private:
  void begin(char sign);
  [[nodiscard]] bool next(char closing);
  [[nodiscard]] char peek();
  [[nodiscard]] bool take(std::string_view word);
  [[nodiscard]] unsigned hexadecimal_digits();
  void add_escaped(std::string& out);
  void skip_number();

  static constexpr int depth_max = 32;
  std::string_view text_;
  std::size_t at_ = 0;
  bool is_first_ = false;  ///< the next item is the first of its list
  int depth_ = 0;
};

}  // namespace hipplan::c
