#include "answer.hpp"

#include <algorithm>
#include <charconv>
#include <deque>
#include <limits>
#include <utility>

#include "core/words.hpp"
#include "failure.hpp"
#include "json_reader.hpp"

namespace hipplan::c {
namespace {

constexpr std::size_t rank_max = 64;
constexpr std::uint64_t bytes_max = std::uint64_t{1} << 62;  ///< so that the sum of two is a number, too

diagnostic read_refusal(json_reader& from) {
  diagnostic out{};
  from.begin_object();
  for (std::string key; from.next_key(key);) {
    const auto text = from.text();
    if (key == "code" && text.starts_with("HP")) {
      std::from_chars(text.data() + 2, text.data() + text.size(), out.code);
    } else if (key == "summary") {
      out.summary = text;
    } else if (key == "why") {
      out.why = text;
    } else if (key == "hint") {
      out.hint = text;
    }
  }
  if (out.code <= 0 || out.summary.empty()) throw wrong_text("it refuses without a reason");
  return out;
}

/// Reads an answer. take(key, from): reads the value of a key, or returns false. Throws failure: the holder
/// refuses.
template <class Take>
void read_message(const std::string& text, const std::string& holder, Take take) {
  try {
    json_reader from(text);
    std::uint64_t number = 0;
    from.begin_object();
    for (std::string key; from.next_key(key);) {
      if (key == "refused") throw failure(read_refusal(from));
      if (key == "number") {
        number = from.number();
      } else if (!take(key, from)) {
        from.skip();
      }
    }
    from.end();
    if (number != request_number) throw wrong_text("it answered another request");
  } catch (const wrong_text& error) {
    no_answer(holder, std::string("the answer is not in order: ") + error.what());
  }
}

class answer_reader {
 public:
  answer_reader(answer& out, int device_count) : out_(out), device_count_(device_count) {}

  bool take(const std::string& key, json_reader& from) {
    if (key == "plan") {
      out_.plan = from.text();
    } else if (key == "devices") {
      each(from, [&] { read_device(from); });
    } else if (key == "rows") {
      each(from, [&] { read_row(from); });
    } else if (key == "objects") {
      each(from, [&] { read_object(from); });
    } else {
      return false;
    }
    return true;
  }

  /// What can be checked only once all is read.
  void check(std::size_t descriptor_count) const {
    if (out_.imports.size() != descriptor_count) {
      throw wrong_text(std::to_string(descriptor_count) + " descriptors came for " +
                       std::to_string(out_.imports.size()) + " allocations");
    }
    for (const auto& object : out_.objects) {
      const auto* const range = range_at(object.range);
      if (object.offset + object.size_bytes > range->size_bytes)
        throw wrong_text("an object is not in its range");
    }
  }

 private:
  template <class Read>
  static void each(json_reader& from, Read read) {
    from.begin_array();
    while (from.next_item()) {
      from.begin_array();
      read();
      from.end_array();
    }
  }

  static std::string next_text(json_reader& from) {
    from.item();
    return from.text();
  }
  static std::uint64_t next_number(json_reader& from) {
    from.item();
    const auto out = from.number();
    if (out > bytes_max) throw wrong_text("a number is too large");
    return out;
  }
  /// least: the smallest number that stands for something else than an ordinal.
  int next_ordinal(json_reader& from, int least) const {
    from.item();
    const auto out = from.integer();
    if (out < least || out >= device_count_) throw wrong_text("a device does not exist");
    return static_cast<int>(out);
  }

  void read_device(json_reader& from) {
    auto name = next_text(from);
    const auto ordinal = next_ordinal(from, 0);
    out_.devices.push_back({std::move(name), ordinal, next_text(from)});
  }

  void read_row(json_reader& from) {
    const auto operation = next_text(from);
    const auto& name = names_->emplace_back(next_text(from));
    const auto slot = static_cast<slot_id>(next_number(from));
    row next{plan_name({names_, &name}), slot, read_kind(operation, slot, from)};
    if (next.makes() && slot != out_.slots++) throw wrong_text("a slot is not the next one");
    if (std::holds_alternative<import_allocation>(next.what)) out_.imports.push_back(out_.rows->rows.size());
    makers_.resize(out_.slots, out_.rows->rows.size());
    out_.rows->rows.push_back(std::move(next));
  }

  decltype(row::what) read_kind(const std::string& operation, slot_id slot, json_reader& from) {
    if (operation == "import allocation") {
      const auto size_bytes = next_number(from);
      return import_allocation{size_bytes, {next_ordinal(from, -2)}};
    }
    if (operation == "reserve") return read_range(from);
    if (operation == "map") return read_mapping(from);
    if (operation == "set access") {
      (void)made_at<map_memory>(slot);
      return read_access(from);
    }
    throw wrong_text("a row does something else than to attach memory");
  }

  reserve_range read_range(json_reader& from) {
    const auto size_bytes = next_number(from);
    const auto alignment = next_number(from);
    const auto slack = next_number(from);
    const auto wanted = next_number(from);
    from.item();
    if ((alignment & (alignment - 1)) != 0) throw wrong_text("an alignment is no power of two");
    return {size_bytes, alignment, slack, wanted, from.boolean()};
  }

  map_memory read_mapping(json_reader& from) {
    const auto range = static_cast<slot_id>(next_number(from));
    const auto offset = next_number(from);
    const auto memory = static_cast<slot_id>(next_number(from));
    const auto size_bytes = next_number(from);
    // The driver would map it over addresses of something else in this process.
    if (offset + size_bytes > range_at(range)->size_bytes) throw wrong_text("a mapping is not in its range");
    if (size_bytes > made_at<import_allocation>(memory)->size_bytes)
      throw wrong_text("a mapping has not so much memory");
    return {range, offset, memory, size_bytes};
  }

  set_rights read_access(json_reader& from) {
    auto native = std::make_unique<std::vector<hip::hipMemAccessDesc>>();
    from.item();
    each(from, [&] {
      const auto ordinal = next_ordinal(from, -1);
      const auto location = ordinal < 0 ? hip::hipMemLocation{hip::hipMemLocationTypeHost, 0}
                                        : hip::hipMemLocation{hip::hipMemLocationTypeDevice, ordinal};
      native->push_back({location, right_of(next_text(from))});
    });
    from.item();
    if (!from.null()) throw wrong_text("there are no rights before");
    from.item();
    const bool together = from.boolean();
    return {shared(std::move(native)), std::nullopt, together};
  }

  static hip::hipMemAccessFlags right_of(const std::string& word) {
    for (const auto& known : access_words) {
      if (known.text == word) return static_cast<hip::hipMemAccessFlags>(known.number);
    }
    throw wrong_text("a right is unknown");
  }

  /// Thousands of mappings mostly have the same rights as the one before.
  rights shared(std::unique_ptr<std::vector<hip::hipMemAccessDesc>> native) {
    auto& known = out_.rows->rights;
    const auto is_same = [](const hip::hipMemAccessDesc& left, const hip::hipMemAccessDesc& right) {
      return left.location.type == right.location.type && left.location.id == right.location.id &&
             left.flags == right.flags;
    };
    if (known.empty() || !std::ranges::equal(*known.back(), *native, is_same))
      known.push_back(std::move(native));
    return *known.back();
  }

  void read_object(json_reader& from) {
    answer::object out{};
    out.name = next_text(from);
    out.kind = next_text(from);
    out.range = static_cast<slot_id>(next_number(from));
    out.offset = next_number(from);
    out.size_bytes = next_number(from);
    out.dtype = next_text(from);
    from.item();
    from.begin_array();
    while (from.next_item()) {
      if (out.shape.size() == rank_max) throw wrong_text("an object has too many dimensions");
      out.shape.push_back(from.number());
    }
    out.device = next_ordinal(from, -2);
    out.writable = next_number(from) != 0;
    out_.objects.push_back(std::move(out));
  }

  /// What makes the object in a slot, of one kind.
  template <class Kind>
  const Kind* made_at(slot_id slot) const {
    if (slot < makers_.size()) {
      if (const auto* const made = std::get_if<Kind>(&out_.rows->rows[makers_[slot]].what)) return made;
    }
    throw wrong_text("a slot has nothing of the kind that is needed");
  }
  const reserve_range* range_at(slot_id slot) const { return made_at<reserve_range>(slot); }

  answer& out_;
  int device_count_;
  std::shared_ptr<std::deque<std::string>> names_ =
      std::make_shared<std::deque<std::string>>();  // never move
  std::vector<std::size_t> makers_;                 ///< slot -> the row that fills it
};

}  // namespace

answer read_answer(const std::string& text, const std::string& holder, int device_count,
                   std::size_t descriptor_count) {
  answer out;
  answer_reader reader(out, device_count);
  read_message(text, holder,
               [&](const std::string& key, json_reader& from) { return reader.take(key, from); });
  try {
    reader.check(descriptor_count);
  } catch (const wrong_text& error) {
    no_answer(holder, std::string("the answer is not in order: ") + error.what());
  }
  return out;
}

std::string read_family(const std::string& text, const std::string& holder) {
  std::string out;
  read_message(text, holder, [&](const std::string& key, json_reader& from) {
    if (key == "family") out = from.text();
    return key == "family";
  });
  if (out != "amd" && out != "cuda" && out != "sim")
    no_answer(holder, "the answer is from another version of hipplan");
  return out;
}

}  // namespace hipplan::c
