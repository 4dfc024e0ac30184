#include "json_reader.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

namespace hipplan::c {
namespace {

void add_utf8(std::string& out, unsigned code_point) {
  const auto add = [&out](unsigned byte) { out += static_cast<char>(byte); };
  if (code_point < 0x80) return add(code_point);
  if (code_point < 0x800) {
    add(0xC0 | code_point >> 6);
  } else if (code_point < 0x10000) {
    add(0xE0 | code_point >> 12);
    add(0x80 | (code_point >> 6 & 0x3F));
  } else {
    add(0xF0 | code_point >> 18);
    add(0x80 | (code_point >> 12 & 0x3F));
    add(0x80 | (code_point >> 6 & 0x3F));
  }
  add(0x80 | (code_point & 0x3F));
}

}  // namespace

char json_reader::peek() {
  at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size());
  if (at_ == text_.size()) throw wrong_text("it ends too early");
  return text_[at_];
}

bool json_reader::take(std::string_view word) {
  if (peek() != word.front() || text_.substr(at_, word.size()) != word) return false;
  at_ += word.size();
  return true;
}

void json_reader::begin(char sign) {
  if (peek() != sign) throw wrong_text(sign == '{' ? "an object is missing" : "a list is missing");
  if (++depth_ > depth_max) throw wrong_text("it is nested too deeply");
  ++at_;
  is_first_ = true;
}

bool json_reader::next(char closing) {
  const auto sign = peek();
  const bool was_first = std::exchange(is_first_, false);
  if (sign == closing) {
    ++at_;
    --depth_;
    return false;
  }
  if (was_first) return true;
  if (sign != ',') throw wrong_text("a comma is missing");
  ++at_;
  return true;
}

bool json_reader::next_key(std::string& key) {
  if (!next('}')) return false;
  key = text();
  if (!take(":")) throw wrong_text("a colon is missing");
  return true;
}

std::string json_reader::text() {
  if (!take("\"")) throw wrong_text("a text is missing");
  std::string out;
  while (true) {
    const auto end = text_.find_first_of("\"\\", at_);
    if (end == text_.npos) throw wrong_text("a text does not end");
    out.append(text_, at_, end - at_);
    at_ = end + 1;
    if (text_[end] == '"') break;
    add_escaped(out);
  }
  if (out.find('\0') != out.npos) throw wrong_text("a text has a zero");
  return out;
}

void json_reader::add_escaped(std::string& out) {
  static constexpr std::string_view signs = "\"\\/bfnrt", meant = "\"\\/\b\f\n\r\t";
  if (at_ >= text_.size()) throw wrong_text("a text does not end");
  const auto sign = text_[at_++];
  if (sign != 'u') {
    const auto place = signs.find(sign);
    if (place == signs.npos) throw wrong_text("a text has an unknown escape");
    out += meant[place];
    return;
  }
  auto code_point = hexadecimal_digits();
  if (code_point >= 0xD800 && code_point < 0xDC00 && text_.substr(at_, 2) == "\\u") {
    at_ += 2;
    const auto low = hexadecimal_digits();
    if (low < 0xDC00 || low > 0xDFFF) throw wrong_text("a text is not Unicode");
    code_point = 0x10000 + ((code_point - 0xD800) << 10) + (low - 0xDC00);
  }
  if (code_point >= 0xD800 && code_point < 0xE000) throw wrong_text("a text is not Unicode");
  add_utf8(out, code_point);
}

unsigned json_reader::hexadecimal_digits() {
  unsigned out = 0;
  const std::string digits(text_.substr(std::min(at_, text_.size()), 4));
  const auto* const end = digits.data() + digits.size();
  if (digits.size() < 4 || std::from_chars(digits.data(), end, out, 16).ptr != end)
    throw wrong_text("a text has an unknown escape");
  at_ += 4;
  return out;
}

std::int64_t json_reader::integer() {
  (void)peek();
  std::int64_t out = 0;
  const auto* const end = text_.data() + text_.size();
  const auto [stop, error] = std::from_chars(text_.data() + at_, end, out);
  const bool is_whole = stop == end || (*stop != '.' && *stop != 'e' && *stop != 'E');
  if (error != std::errc() || !is_whole) throw wrong_text("a whole number is missing, or too large");
  at_ = static_cast<std::size_t>(stop - text_.data());
  return out;
}

std::uint64_t json_reader::number() {
  const auto out = integer();
  if (out < 0) throw wrong_text("a number is negative");
  return static_cast<std::uint64_t>(out);
}

bool json_reader::boolean() {
  if (take("true")) return true;
  if (!take("false")) throw wrong_text("true or false is missing");
  return false;
}

void json_reader::skip_number() {
  const auto end = std::min(text_.find_first_not_of("+-.0123456789eE", at_), text_.size());
  if (end == at_) throw wrong_text("a value is missing");
  at_ = end;
}

void json_reader::skip() {
  const auto sign = peek();
  if (sign == '{') {
    begin_object();
    for (std::string key; next_key(key);) skip();
  } else if (sign == '[') {
    begin_array();
    while (next_item()) skip();
  } else if (sign == '"') {
    (void)text();
  } else if (!take("true") && !take("false") && !take("null")) {
    skip_number();
  }
}

void json_reader::end() {
  if (text_.find_first_not_of(" \t\r\n", at_) != text_.npos) throw wrong_text("something follows its end");
}

}  // namespace hipplan::c
