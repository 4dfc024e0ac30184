// One function per topic; module.cpp only lists them.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>

#include "hip/error.hpp"

namespace hipplan {

namespace py = pybind11;

/// Every call that may wait for the driver or a native lock runs without the GIL.
using no_gil = py::call_guard<py::gil_scoped_release>;

/// How long many driver calls in a row may take before somebody looks whether a signal has come.
inline constexpr std::chrono::milliseconds between_signals{5};

void bind_errors(py::module_& module);
void bind_runtime(py::module_& module);
void bind_queries(py::module_& module);
void bind_journal(py::module_& module);
void bind_undo(py::module_& module);
void bind_views(py::module_& module);
void bind_batch(py::module_& module);
void bind_filler(py::module_& module);

/// A driver's failure as a Python exception object, not raised.
[[nodiscard]] py::object as_python(const hip::hip_error& error);

}  // namespace hipplan
