// A program's steps in native form, read from Python's step objects once, field by field: then thousands of
// driver calls follow one another with no question to Python in between.
//
// Known are the steps that layouts have many of: hipplan.steps.CreateAllocation, Map, SetAccess and
// CreateDeviceBuffer. All others stay Python's, and are made by their own do(). A test holds that both ways
// make the same driver calls.
#pragma once

#include <deque>
#include <limits>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "bindings.hpp"
#include "core/batch.hpp"

namespace hipplan {

/// What a step needs of another one. The name is borrowed from the steps.
struct needed {
  static constexpr auto outside = std::numeric_limits<std::size_t>::max();

  py::handle name;
  std::size_t made_by = outside;  ///< the place of the step that makes it, where it is one of these
};

struct native_map {
  plan_name name;
  py::handle range;
  std::size_t offset_bytes;  ///< from the range's aligned base
  needed memory;
  std::size_t size_bytes;
};

struct native_access {
  needed mapping;
  std::span<const hip::hipMemAccessDesc> rights;
  bool together;
};

/// std::monostate: Python's own.
using native_step = std::variant<std::monostate, create_step, native_map, native_access, buffer_step>;

class native_steps {
 public:
  /// Throws std::invalid_argument for a step that is none, and what Python raises.
  explicit native_steps(py::tuple steps);

  [[nodiscard]] std::size_t size() const noexcept { return native_.size(); }
  [[nodiscard]] const native_step& operator[](std::size_t place) const { return native_[place]; }
  /// What the object is called that a step is about; null for a step of Python's.
  [[nodiscard]] py::handle name(std::size_t place) const { return names_[place]; }

 private:
  [[nodiscard]] native_step read(PyObject* step, const py::dict& made_by);
  [[nodiscard]] std::span<const hip::hipMemAccessDesc> read_rights(py::handle rights);

  py::tuple steps_;  // keeps the names alive
  std::vector<native_step> native_;
  std::vector<py::handle> names_;
  std::shared_ptr<std::vector<std::string>> texts_;        // of the names that owners keep; never moves
  std::deque<std::vector<hip::hipMemAccessDesc>> rights_;  // a deque: the steps point into it
  py::handle last_rights_;
};

[[nodiscard]] std::string text_of(py::handle value);
/// The number under a name; 0 where there is none.
[[nodiscard]] std::uint64_t look_up(const py::dict& table, py::handle name);

}  // namespace hipplan
