// Conversions between the core's types and Python's.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <string_view>
#include <vector>

#include "core/units.hpp"
#include "hip/error.hpp"

namespace hipplan {

namespace py = pybind11;

/// Python's ordinals as device_ids.
[[nodiscard]] inline std::vector<device_id> device_ids(const std::vector<int>& ordinals) {
  std::vector<device_id> out;
  out.reserve(ordinals.size());
  for (const int ordinal : ordinals) out.push_back(device_id{ordinal});
  return out;
}

/// Text that may contain a file name, which need not be UTF-8: as os.fsdecode. The reverse, os.fsencode, is
/// std::filesystem::path.
[[nodiscard]] inline py::str file_system_text(std::string_view bytes) {
  auto* const text = PyUnicode_DecodeFSDefaultAndSize(bytes.data(), static_cast<py::ssize_t>(bytes.size()));
  if (!text) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(text);
}

/// The Python object that owns a C++ object: a reference to it keeps both alive. In place of py::keep_alive,
/// which ends the process if an allocation fails.
template <class Owned>
[[nodiscard]] py::object keeper_of(Owned& owned) {
  return py::cast(owned, py::return_value_policy::reference);
}

/// A driver's failure as a Python exception object, not raised.
[[nodiscard]] py::object as_python(const hip::hip_error& error);

}  // namespace hipplan
