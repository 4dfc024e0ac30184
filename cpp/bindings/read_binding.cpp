#include <memory>

#include "read_rows.hpp"

namespace hipplan {
namespace {

/// The caller's memory: it cannot be moved or resized while this lives.
class callers_memory : public host_memory {
 public:
  callers_memory(const Py_buffer& view, std::size_t size_bytes) noexcept
      : host_memory(view.buf, size_bytes), view_(view) {}
  ~callers_memory() override {
    if (stays() || !Py_IsInitialized()) return;
    const with_gil interpreter;
    PyBuffer_Release(&view_);
  }

 private:
  Py_buffer view_;
};

}  // namespace

binding read_binding(std::size_t row, const py::object& given, std::size_t size_bytes) {
  if (PyLong_Check(given.ptr())) return {row, given.cast<int>(), nullptr};
  Py_buffer view{};
  if (PyObject_GetBuffer(given.ptr(), &view, PyBUF_SIMPLE) != 0) throw py::error_already_set();
  try {
    return {row, -1, std::make_shared<callers_memory>(view, size_bytes)};
  } catch (...) {
    PyBuffer_Release(&view);
    throw;
  }
}

}  // namespace hipplan
