// What the core has, as Python has it, and back.
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

/// Devices by the ordinals that Python has for them.
[[nodiscard]] inline std::vector<device_id> device_ids(const std::vector<int>& ordinals) {
  std::vector<device_id> out;
  out.reserve(ordinals.size());
  for (const int ordinal : ordinals) out.push_back(device_id{ordinal});
  return out;
}

/// Bytes that are a file's name or may hold one, which need not be UTF-8: as os.fsdecode. The way in is
/// std::filesystem::path, as os.fsencode.
[[nodiscard]] inline py::str file_system_text(std::string_view bytes) {
  auto* const text = PyUnicode_DecodeFSDefaultAndSize(bytes.data(), static_cast<py::ssize_t>(bytes.size()));
  if (!text) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(text);
}

/// The Python object that owns a C++ one: while somebody has it, both live. In place of py::keep_alive, which
/// ends the process where there is no memory for its note of who keeps whom.
template <class Owned>
[[nodiscard]] py::object keeper_of(Owned& owned) {
  return py::cast(owned, py::return_value_policy::reference);
}

/// A driver's failure as a Python exception object, not raised.
[[nodiscard]] py::object as_python(const hip::hip_error& error);

}  // namespace hipplan
