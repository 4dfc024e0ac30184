// What reads the rows of a change from Python, one after the other.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/rows.hpp"
#include "fields.hpp"

namespace hipplan {

/// How many names and rows these tuples make, at most. Throws std::invalid_argument if memory could not hold
/// them.
[[nodiscard]] std::size_t rows_in(std::span<PyObject* const> tuples);

class row_reader {
 public:
  explicit row_reader(std::size_t rows) {
    names_->reserve(rows);
    out_->rows.reserve(rows);
  }

  void read(PyObject* tuple);
  [[nodiscard]] row_table_ptr result() { return out_; }

 private:
  using reads = decltype(row::what) (*)(row_reader&, fields&);
  [[nodiscard]] static reads find(std::string_view operation);
  /// What reads an allocation or a buffer; null for another operation.
  [[nodiscard]] static reads find_counted(std::string_view operation);
  /// Buffers read themselves.
  template <class Kind>
  static decltype(row::what) read_kind(row_reader&, fields& from) {
    return Kind::read(from);
  }
  /// Null if no buffer is made by this operation.
  template <class... Rows>
  [[nodiscard]] static reads find_buffer(std::string_view operation, types<Rows...>) {
    reads read = nullptr;
    ((operation == Rows::operation && (read = &read_kind<Rows>)) || ...);
    return read;
  }

  /// Reads the members of a run. False: the operation is that of one row.
  [[nodiscard]] bool read_run(std::string_view operation, fields& from);
  void read_memory_run(fields& from);
  void read_mapping_run(fields& from);
  void read_access_run(fields& from);
  void read_unmap_run(fields& from);
  void read_copy_run(fields& from);
  void read_count_run(fields& from);
  void add(std::string name, slot_id slot, decltype(row::what) what) {
    const auto& kept = names_->emplace_back(std::move(name));
    out_->rows.push_back({plan_name({names_, &kept}), slot, std::move(what)});
  }

  /// Thousands of mappings share the same rights, as the same Python object: then it is read once.
  [[nodiscard]] rights read_rights(PyObject* given);
  [[nodiscard]] static std::pair<hip::hipMemoryAdvise, device_id> read_advice(PyObject* given);

  std::shared_ptr<row_table> out_ = std::make_shared<row_table>();
  std::shared_ptr<std::vector<std::string>> names_ =
      std::make_shared<std::vector<std::string>>();  // never moves
  std::string_view last_operation_;
  reads last_reads_ = nullptr;
  PyObject* last_rights_ = nullptr;
};

}  // namespace hipplan
