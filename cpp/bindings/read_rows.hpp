// Reads rows from Python: tuples (operation, name, slot, numbers ...) as hipplan/lowering/rows.py makes them.
#pragma once

#include "bindings.hpp"
#include "core/rows.hpp"

namespace hipplan {

/// Throws std::invalid_argument for a tuple that is not a row, and what Python raises.
[[nodiscard]] row_table_ptr read_rows(const py::sequence& rows);

/// Reads the caller's object for a row: a file descriptor, or memory by the buffer protocol, which the caller
/// may move again when it is unregistered. Throws what Python raises.
[[nodiscard]] binding read_binding(std::size_t row, const py::object& given, std::size_t size_bytes);

}  // namespace hipplan
