// The core's exceptions as Python's.
#include <stdexcept>
#include <system_error>

#include "bindings.hpp"
#include "core/change.hpp"

namespace hipplan {
namespace {

// Never released: exception translators run until the interpreter ends.
PyObject* hip_error_type = nullptr;
PyObject* runtime_unusable_type = nullptr;
PyObject* address_taken_type = nullptr;

PyObject* new_type(py::module_& module, const char* name, const char* about) {
  const auto full = "hipplan._core." + std::string(name);
  PyObject* const made = PyErr_NewExceptionWithDoc(full.c_str(), about, PyExc_RuntimeError, nullptr);
  if (!made) throw py::error_already_set();
  module.attr(name) = py::reinterpret_borrow<py::object>(made);
  return made;
}

}  // namespace

py::object as_python(const hip::hip_error& error) {
  py::object instance = py::reinterpret_borrow<py::object>(hip_error_type)(error.what());
  instance.attr("code") = error.code();
  instance.attr("name") = error.name();
  instance.attr("call") = error.call();
  instance.attr("subject") = error.subject();
  instance.attr("arguments") = error.arguments();
  return instance;
}

void bind_errors(py::module_& module) {
  hip_error_type = new_type(module, "HipError", "A driver call that did not succeed.");
  runtime_unusable_type = new_type(module, "RuntimeUnusable", "A library that cannot serve as a runtime.");
  address_taken_type =
      new_type(module, "AddressTaken", "An address that a plan demands cannot be had. Its text says why.");
  // NOLINTNEXTLINE(performance-unnecessary-value-param): pybind11 asks for just this type
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const hip::hip_error& error) {
      PyErr_SetObject(hip_error_type, as_python(error).ptr());
    } catch (const address_taken& error) {
      py::object instance = py::reinterpret_borrow<py::object>(address_taken_type)(error.what());
      instance.attr("address") = error.address;
      PyErr_SetObject(address_taken_type, instance.ptr());
    } catch (const std::system_error& error) {
      const auto arguments = py::make_tuple(error.code().value(), file_system_text(error.what()));
      PyErr_SetObject(PyExc_OSError, arguments.ptr());
    } catch (const hip::runtime_unusable& error) {
      PyErr_SetObject(runtime_unusable_type, file_system_text(error.what()).ptr());
    } catch (const std::invalid_argument& error) {
      PyErr_SetObject(PyExc_ValueError, file_system_text(error.what()).ptr());
    }
  });
}

}  // namespace hipplan
