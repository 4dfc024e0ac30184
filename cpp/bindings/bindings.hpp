// One function per topic; module.cpp only lists them.
#pragma once

#include "constructor.hpp"
#include "conversions.hpp"
#include "interpreter.hpp"

namespace hipplan {

void bind_errors(py::module_& module);
void bind_runtime(py::module_& module);
void bind_queries(py::module_& module);
void bind_undo(py::module_& module);
void bind_views(py::module_& module);
void bind_change(py::module_& module);
void bind_filler(py::module_& module);
void bind_transfers(py::module_& module);

}  // namespace hipplan
