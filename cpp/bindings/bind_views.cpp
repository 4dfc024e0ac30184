// Leases, memory as views see it, and pools for other allocators.
#include <array>

#include "core/growing_pool.hpp"
#include "core/memory_pool.hpp"
#include "core/pools_change.hpp"
#include "core/words.hpp"
#include "window.hpp"

namespace hipplan {
namespace {

using growing_pool_ptr = std::shared_ptr<growing_pool>;

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

std::string state_word(const growing_pool& self) {
  constexpr std::array words{"open", "stopped", "asleep", "closed"};
  return words[static_cast<std::size_t>(self.current_state())];
}

growing_pool_ptr new_growing_pool(runtime_ptr runtime, const snapshot& in, slot_id range, std::string name,
                                  int device, std::pair<std::size_t, std::size_t> chunk_and_step, bool rdma,
                                  const std::vector<std::pair<int, std::string>>& rights,
                                  std::shared_ptr<lease_book> book) {
  pool_memory memory{std::move(name), device_id{device}, chunk_and_step.first, chunk_and_step.second, {}, {}};
  memory.properties.location_id = device;
  memory.properties.rdma = rdma;
  for (const auto& [who, right] : rights) {
    const auto flags = static_cast<hip::hipMemAccessFlags>(number_of(access_words, right));
    memory.rights.push_back({{hip::hipMemLocationTypeDevice, who}, flags});
  }
  const without_gil release;
  return growing_pool::create(std::move(runtime), in, range, std::move(memory), std::move(book));
}

void bind_growing_pool(py::module_& module) {
  py::register_exception<pool_state_error>(module, "PoolStateError", PyExc_RuntimeError);
  py::class_<growing_pool::usage>(module, "PoolUsage", "Bytes and counts of a growing pool.")
      .def_readonly("reserved", &growing_pool::usage::reserved_bytes)
      .def_readonly("mapped", &growing_pool::usage::mapped_bytes)
      .def_readonly("used", &growing_pool::usage::used_bytes)
      .def_readonly("saved", &growing_pool::usage::saved_bytes)
      .def_readonly("chunks", &growing_pool::usage::chunks)
      .def_readonly("blocks", &growing_pool::usage::blocks)
      .def_readonly("refused", &growing_pool::usage::refused, "How often it had no room.")
      .def_readonly("all_chunks", &growing_pool::usage::all_chunks_bytes, "Bytes, asleep or not.");
  py::class_<growing_pool, growing_pool_ptr>(
      module, "GrowingPool", "Memory that is mapped as blocks are asked for, by C functions of its slot.")
      .def("__init__", constructor(&new_growing_pool), is_constructor(), py::arg("runtime"),
           py::arg("snapshot"), py::arg("range"), py::arg("name"), py::arg("device"),
           py::arg("chunk_and_step"), py::arg("rdma"), py::arg("rights"), py::arg("book"))
      .def_static("left_over", &growing_pool::left_over, no_gil(),
                  "Closed pools that still own memory, because tensors lived on.")
      .def_property_readonly("slot", &growing_pool::slot)
      .def_property_readonly("device", [](const growing_pool& self) { return self.device().value; })
      .def_property_readonly("state", state_word, "open, stopped, asleep or closed.")
      .def_property_readonly("usage", py::cpp_function(&growing_pool::used, no_gil()))
      .def_property_readonly("why_full", &growing_pool::why_full,
                             "Why it returned null last; empty if it never did.")
      .def("stop", &growing_pool::stop, no_gil(), "Gives out nothing until resume().")
      .def("resume", &growing_pool::resume, no_gil())
      .def("mark", &growing_pool::mark, no_gil(), "For free_chunks(): what is freed before this.")
      .def("free_chunks", &growing_pool::free_chunks, py::arg("mark"), py::arg("report"), no_gil(),
           "For a device that was idle since mark(): frees chunks without blocks.")
      .def("copy_of", &growing_pool::copy_of, py::arg("address"), py::arg("size"), no_gil(),
           "Where host memory has a copy of bytes of a block; 0: nowhere.")
      .def("close", &growing_pool::close, py::arg("unmaps"), py::arg("report"), no_gil(),
           "Gives out nothing any more; unmaps: frees all memory now.")
      .def("abandon", &growing_pool::abandon, no_gil(),
           "For a layout that is dropped: closes it, waits for the device and frees what can be freed.");
}

void bind_pools_change(py::module_& module) {
  py::class_<pools_change, std::shared_ptr<pools_change>>(
      module, "PoolsChange", "Sleep or wake of several growing pools: all of them, or none.")
      .def("__init__", constructor(+[] { return ended_without_gil(new pools_change); }), is_constructor())
      .def("sleep", &pools_change::sleep, py::arg("pool"), py::arg("keep_bytes"), py::arg("report"), no_gil())
      .def("wake", &pools_change::wake, py::arg("pool"), py::arg("report"), no_gil())
      .def("commit", &pools_change::commit, py::arg("retain"), py::arg("report"), no_gil())
      .def("undo", &pools_change::undo, py::arg("report"), no_gil(),
           "Names what stays asleep: alterations that could not be undone.");
}

}  // namespace

void bind_views(py::module_& module) {
  bind_leases(module);
  bind_window(module);
  bind_lease(module);
  bind_pool(module);
  bind_growing_pool(module);
  bind_pools_change(module);
}

}  // namespace hipplan
