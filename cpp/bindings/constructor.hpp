// Constructors of bound classes.
#pragma once

#include <pybind11/pybind11.h>

#include <utility>

namespace hipplan {

namespace py = pybind11;

/// For class_::def("__init__", ..., is_constructor), in place of py::init. pybind11 registers each instance
/// in a table. For py::init it does that outside any handler: a failed allocation would end the process. Here
/// it happens within the call, and raises MemoryError. make: returns the class's holder type.
template <class Holder, class... Args>
[[nodiscard]] auto constructor(Holder (*make)(Args...)) {
  return [make](py::detail::value_and_holder& place, Args... args) {
    Holder made = make(std::forward<Args>(args)...);
    place.value_ptr() = made.get();
    try {
      place.type->init_instance(place.inst, &made);
    } catch (...) {
      place.value_ptr() = nullptr;
      throw;
    }
  };
}

using is_constructor = py::detail::is_new_style_constructor;

}  // namespace hipplan
