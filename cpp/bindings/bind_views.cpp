// Leases, memory as views see it, and pools for other allocators.
#include "core/memory_pool.hpp"
#include "window.hpp"

namespace hipplan {
namespace {

capsule_kind kind_of(const py::tuple& device, const py::tuple& dtype, bool read_only, bool versioned) {
  return {device[0].cast<int>(),
          device[1].cast<int>(),
          dtype[0].cast<int>(),
          dtype[1].cast<int>(),
          read_only,
          versioned};
}

void bind_leases(py::module_& module) {
  py::register_exception<lease_refused>(module, "LeaseRefused", PyExc_BufferError);
  py::class_<leased>(module, "Leased", "The memory of a lease.")
      .def_readonly("name", &leased::name)
      .def_readonly("address", &leased::address)
      .def_readonly("size", &leased::size_bytes);
  py::class_<lease_book, std::shared_ptr<lease_book>>(module, "LeaseBook", "The leases on a layout's memory.")
      .def("__init__", constructor(+[] { return std::make_shared<lease_book>(); }), is_constructor())
      .def("__len__", &lease_book::size, no_gil())
      .def("overlapping", &lease_book::overlapping, py::arg("address"), py::arg("size"), no_gil())
      .def("bar", &lease_book::bar, py::arg("address"), py::arg("size"), py::arg("force") = false,
           py::arg("spares_devices") = false, no_gil(),
           "Returns the leases on a range, and bars it from new ones if there are none, or with force. "
           "spares_devices: leases of devices stay, and are not counted.")
      .def("unbar", &lease_book::unbar, py::arg("address"), py::arg("size"), no_gil())
      .def("settle", &lease_book::settle, no_gil(),
           "The barred memory was freed: from now on the bars refuse only older handles.")
      .def_property_readonly("age", &lease_book::age);
}

void bind_window(py::module_& module) {
  const auto buffer_slots = py::custom_type_setup([](PyHeapTypeObject* type) {
    type->ht_type.tp_as_buffer = &type->as_buffer;
    type->as_buffer.bf_getbuffer = get_buffer;
    type->as_buffer.bf_releasebuffer = release_buffer;
  });
  py::class_<window>(module, "Window", "A piece of memory as views see it.", buffer_slots)
      .def("__init__",
           constructor(+[](std::shared_ptr<lease_book> book, std::string name, std::uintptr_t address,
                           std::vector<std::int64_t> shape, std::int64_t item_bytes, std::string format,
                           std::string no_buffer, bool read_only, std::uint64_t age) {
             return std::make_unique<window>(window{std::move(book), std::move(name), address,
                                                    std::move(shape), item_bytes, std::move(format),
                                                    std::move(no_buffer), read_only, age});
           }),
           is_constructor(), py::arg("book"), py::arg("name"), py::arg("address"), py::arg("shape"),
           py::arg("item_bytes"), py::arg("format"), py::arg("no_buffer"), py::arg("read_only"),
           py::arg("age"))
      .def(
          "_capsule",
          [](const window& self, const py::tuple& device, const py::tuple& dtype, bool read_only,
             bool versioned) { return make_capsule(self, kind_of(device, dtype, read_only, versioned)); },
          py::arg("device"), py::arg("dtype"), py::arg("read_only"), py::arg("versioned"))
      .def(
          "_host_copy",
          [](const window& self, hip::runtime& runtime, const py::tuple& dtype, bool versioned) {
            return copy_to_host(self, kind_of(py::make_tuple(1, 0), dtype, false, versioned), runtime);
          },
          py::arg("runtime"), py::arg("dtype"), py::arg("versioned"));
}

/// Made by its constructor, never returned: pybind11 loses a returned object if there is no memory to wrap
/// it.
void bind_lease(py::module_& module) {
  py::class_<lease>(module, "Lease",
                    "A lease on a window, for Python objects that keep one; ends with this object.")
      .def("__init__", constructor(+[](const window& on, bool by_cpu) {
             return std::make_unique<lease>(on.take(by_cpu));
           }),
           is_constructor(), py::arg("window"), py::arg("by_cpu") = true);
}

void bind_pool(py::module_& module) {
  py::class_<memory_pool, std::shared_ptr<memory_pool>>(
      module, "MemoryPool", "Memory handed out in blocks, by C functions with the number of its slot.")
      .def("__init__",
           constructor(+[](runtime_ptr runtime, std::string name, int device, std::uintptr_t address,
                           std::size_t size, std::shared_ptr<lease_book> book) {
             const without_gil release;
             return memory_pool::create(std::move(runtime), std::move(name), device_id{device}, address, size,
                                        std::move(book));
           }),
           is_constructor(), py::arg("runtime"), py::arg("name"), py::arg("device"), py::arg("address"),
           py::arg("size"), py::arg("book"))
      .def_property_readonly("slot", &memory_pool::slot)
      .def_property_readonly("blocks", &memory_pool::blocks)
      .def_property_readonly("used", &memory_pool::used_bytes)
      .def_property_readonly("largest_free", &memory_pool::largest_free_bytes)
      .def("renew", &memory_pool::renew, no_gil(), "For memory that was freed and restored.")
      .def("close", &memory_pool::close, no_gil(),
           "Refuses new blocks; the slot becomes free with the last block.");
}

}  // namespace

void bind_views(py::module_& module) {
  bind_leases(module);
  bind_window(module);
  bind_lease(module);
  bind_pool(module);
}

}  // namespace hipplan
