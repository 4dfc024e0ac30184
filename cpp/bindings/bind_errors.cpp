// hip_error and runtime_unusable as Python exceptions.
#include <system_error>

#include "bindings.hpp"

namespace hipplan {
namespace {

// Never given back: translators run until the interpreter is gone.
PyObject* hip_error_type = nullptr;

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
  hip_error_type = PyErr_NewExceptionWithDoc("hipplan._core.HipError", "A driver call that did not succeed.",
                                             PyExc_RuntimeError, nullptr);
  if (!hip_error_type) throw py::error_already_set();
  module.attr("HipError") = py::reinterpret_borrow<py::object>(hip_error_type);
  py::register_exception<hip::runtime_unusable>(module, "RuntimeUnusable", PyExc_RuntimeError);
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const hip::hip_error& error) {
      PyErr_SetObject(hip_error_type, as_python(error).ptr());
    } catch (const std::system_error& error) {
      const auto arguments = py::make_tuple(error.code().value(), error.what());
      PyErr_SetObject(PyExc_OSError, arguments.ptr());
    }
  });
}

}  // namespace hipplan
