// The fields of tuples that Python passes.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "core/words.hpp"

namespace hipplan {

namespace py = pybind11;

/// The fields of one tuple, one after the other.
class fields {
 public:
  explicit fields(PyObject* row) : row_(row), size_(PyTuple_Check(row) ? PyTuple_GET_SIZE(row) : 0) {
    if (!PyTuple_Check(row)) throw std::invalid_argument("a row is a tuple");
  }

  [[nodiscard]] PyObject* next() {
    if (at_ >= size_) throw std::invalid_argument("a row ends too early");
    return PyTuple_GET_ITEM(row_, at_++);
  }
  void end() const {
    if (at_ != size_) throw std::invalid_argument("a row is too long");
  }
  [[nodiscard]] std::string_view text() {
    Py_ssize_t length = 0;
    const char* const letters = PyUnicode_AsUTF8AndSize(next(), &length);
    if (!letters) throw py::error_already_set();
    return {letters, static_cast<std::size_t>(length)};
  }
  [[nodiscard]] std::uint64_t number() {
    const auto out = PyLong_AsUnsignedLongLong(next());
    if (out == static_cast<std::uint64_t>(-1) && PyErr_Occurred()) throw py::error_already_set();
    return out;
  }
  [[nodiscard]] int integer() {
    const auto out = PyLong_AsLong(next());
    if (out == -1 && PyErr_Occurred()) throw py::error_already_set();
    return narrow<int>(out);
  }
  /// The number of a word.
  template <class Number = unsigned>
  [[nodiscard]] Number word(std::span<const hipplan::word> known) {
    return static_cast<Number>(number_of(known, text()));
  }
  /// The flags of a tuple of words.
  [[nodiscard]] unsigned flags(std::span<const hipplan::word> known) {
    fields words(next());
    unsigned bits = 0;
    while (words.at_ < words.size_) bits |= words.word(known);
    return bits;
  }
  /// A path, with bytes that are no text.
  [[nodiscard]] std::string path() {
    auto* const encoded = PyUnicode_EncodeFSDefault(next());
    if (!encoded) throw py::error_already_set();
    return py::reinterpret_steal<py::bytes>(encoded);
  }
  [[nodiscard]] device_id device() { return {integer()}; }
  [[nodiscard]] bool boolean() { return next() == Py_True; }
  [[nodiscard]] slot_id slot() {
    const int out = integer();
    return out < 0 ? no_slot : static_cast<slot_id>(out);
  }

 private:
  template <class Narrow, class Wide>
  static Narrow narrow(Wide wide) {
    if (!std::in_range<Narrow>(wide)) throw std::invalid_argument("a row has a number that is too large");
    return static_cast<Narrow>(wide);
  }

  PyObject* row_;
  Py_ssize_t size_;
  Py_ssize_t at_ = 0;
};

}  // namespace hipplan
