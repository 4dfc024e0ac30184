// A holder's answer to a process without Python, as hipplan/holders/rows_for_c.py describes it.
//
// The holder may be broken, or hostile: everything in its answer is checked before a driver call uses it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/rows.hpp"

namespace hipplan::c {

struct answer {
  struct device {
    std::string name;
    int ordinal;
    std::string uuid;
  };
  /// An object at an offset in a range.
  struct object {
    std::string name;
    std::string kind;
    slot_id range;
    std::uint64_t offset;
    std::uint64_t size_bytes;
    std::string dtype;
    std::vector<std::uint64_t> shape;
    int device;  ///< an ordinal; -1 for the host; -2 for what is not on a single device
    bool writable;
  };
  std::string plan;
  std::vector<device> devices;
  std::shared_ptr<row_table> rows = std::make_shared<row_table>();
  std::size_t slots = 0;
  std::vector<std::size_t> imports;  ///< the numbers of the rows that import, in order
  std::vector<object> objects;
};

/// The number that every request has, in its answer.
inline constexpr std::uint64_t request_number = 1;

/// holder: for errors. device_count: how many devices this process sees. descriptor_count: how many came with
/// the answer. Throws failure: what the holder refuses; HP455 if the answer is not in order. Throws
/// std::bad_alloc.
[[nodiscard]] answer read_answer(const std::string& text, const std::string& holder, int device_count,
                                 std::size_t descriptor_count);

/// The same of a request for the family.
[[nodiscard]] std::string read_family(const std::string& text, const std::string& holder);

}  // namespace hipplan::c
