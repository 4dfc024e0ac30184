#include "window.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>

#include "core/transfer.hpp"
#include "dlpack_abi.h"

namespace hipplan {
namespace {

// The data of a capsule, freed by the tensor's deleter.
template <class Managed>
struct exported {
  Managed managed{};
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
  std::optional<lease> held;           // of the layout's memory,
  std::unique_ptr<std::byte[]> bytes;  // or a copy

  static void free(Managed* tensor) noexcept { delete static_cast<exported*>(tensor->manager_context); }
};

template <class Managed>
constexpr const char* capsule_name = "dltensor";
template <>
constexpr const char* capsule_name<dlpack::managed_tensor_versioned> = "dltensor_versioned";

// A consumer renames the capsule and calls the deleter itself; a capsule that was not consumed does it here.
template <class Managed>
void drop_unused(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, capsule_name<Managed>)) return;
  auto* const tensor = static_cast<Managed*>(PyCapsule_GetPointer(capsule, capsule_name<Managed>));
  tensor->deleter(tensor);
}

template <class Managed>
py::capsule wrap(const window& self, const capsule_kind& kind, std::optional<lease> held,
                 std::unique_ptr<std::byte[]> bytes) {
  const bool copied = bytes != nullptr;
  void* const data = copied ? bytes.get() : reinterpret_cast<void*>(self.address);
  auto out = std::make_unique<exported<Managed>>();
  out->shape = self.shape;
  out->strides = self.strides(1);
  if (held) out->held.emplace(std::move(*held));
  out->bytes = std::move(bytes);
  out->managed.manager_context = out.get();
  out->managed.deleter = &exported<Managed>::free;
  if constexpr (requires { out->managed.flags; }) {
    out->managed.version = {};
    out->managed.flags =
        (kind.read_only ? dlpack::flag_read_only : 0) | (copied ? dlpack::flag_is_copied : 0);
  }
  out->managed.dl_tensor = {
      .data = data,
      .device = {kind.device_type, kind.device_id},
      .ndim = static_cast<std::int32_t>(out->shape.size()),
      .dtype = {static_cast<std::uint8_t>(kind.code), static_cast<std::uint8_t>(kind.bits), 1},
      .shape = out->shape.data(),
      .strides = out->strides.data(),
      .byte_offset = 0,
  };
  PyObject* const capsule = PyCapsule_New(&out->managed, capsule_name<Managed>, &drop_unused<Managed>);
  if (!capsule) throw py::error_already_set();
  (void)out.release();  // now the capsule owns it
  return py::reinterpret_steal<py::capsule>(capsule);
}

py::capsule wrap(const window& self, const capsule_kind& kind, std::optional<lease> held,
                 std::unique_ptr<std::byte[]> bytes) {
  if (kind.versioned) {
    return wrap<dlpack::managed_tensor_versioned>(self, kind, std::move(held), std::move(bytes));
  }
  return wrap<dlpack::managed_tensor>(self, kind, std::move(held), std::move(bytes));
}

struct exported_buffer {
  lease held;
  std::string format;
  std::vector<Py_ssize_t> shape;
  std::vector<Py_ssize_t> strides;
};

int refuse(const std::string& why) {
  PyErr_SetString(PyExc_BufferError, why.c_str());
  return -1;
}

/// Whether the elements are in Fortran order too.
bool is_column_major(const window& self) {
  return self.size_bytes() == 0 ||
         std::ranges::count_if(self.shape, [](auto extent) { return extent > 1; }) < 2;
}

int fill_buffer(PyObject* object, Py_buffer* view, int flags) {
  const auto& self = *py::cast<const window*>(py::handle(object));
  if (self.format.empty()) return refuse(self.no_buffer);
  if (self.read_only && (flags & PyBUF_WRITABLE) == PyBUF_WRITABLE)
    return refuse("'" + self.name + "' is read-only");
  const auto asks = [&](int order) { return (flags & order) == order; };
  if (asks(PyBUF_F_CONTIGUOUS) && !asks(PyBUF_C_CONTIGUOUS) && !is_column_major(self))
    return refuse("'" + self.name + "' is row-major, and column-major is asked for");
  const auto strides = self.strides(self.item_bytes);
  auto out = std::unique_ptr<exported_buffer>(new exported_buffer{
      self.take(), self.format, {self.shape.begin(), self.shape.end()}, {strides.begin(), strides.end()}});
  view->buf = reinterpret_cast<void*>(self.address);
  view->len = static_cast<Py_ssize_t>(self.size_bytes());
  view->itemsize = static_cast<Py_ssize_t>(self.item_bytes);
  view->readonly = self.read_only;
  view->ndim = static_cast<int>(self.shape.size());
  view->format = (flags & PyBUF_FORMAT) == PyBUF_FORMAT ? out->format.data() : nullptr;
  view->shape = (flags & PyBUF_ND) == PyBUF_ND ? out->shape.data() : nullptr;
  view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? out->strides.data() : nullptr;
  view->suboffsets = nullptr;
  view->internal = out.release();
  view->obj = Py_NewRef(object);
  return 0;
}

}  // namespace

std::size_t window::size_bytes() const noexcept {
  return static_cast<std::size_t>(
      std::accumulate(shape.begin(), shape.end(), item_bytes, std::multiplies<std::int64_t>()));
}

std::vector<std::int64_t> window::strides(std::int64_t unit) const {
  std::vector<std::int64_t> out(shape.size());
  for (auto i = shape.size(); i-- > 0; unit *= shape[i]) out[i] = unit;
  return out;
}

py::capsule make_capsule(const window& self, const capsule_kind& kind) {
  return wrap(self, kind, self.take(kind.device_type == dlpack::cpu), nullptr);
}

py::capsule copy_to_host(const window& self, const capsule_kind& kind, hip::runtime& runtime) {
  const auto held = self.take();  // only while it is copied
  const auto size = self.size_bytes();
  std::unique_ptr<std::byte[]> bytes(new std::byte[std::max<std::size_t>(size, 1)]);
  if (size != 0) {
    const without_gil release;
    copy(runtime, reinterpret_cast<std::uintptr_t>(bytes.get()), self.address, size);
  }
  return wrap(self, kind, std::nullopt, std::move(bytes));
}

int get_buffer(PyObject* object, Py_buffer* view, int flags) {
  view->obj = nullptr;
  try {
    return fill_buffer(object, view, flags);
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
    return -1;
  } catch (const std::exception& error) {
    return refuse(error.what());
  }
}

void release_buffer(PyObject*, Py_buffer* view) { delete static_cast<exported_buffer*>(view->internal); }

}  // namespace hipplan
