// Filling memory with native threads.
#include "bindings.hpp"
#include "core/filler.hpp"

namespace hipplan {
namespace {

/// Called in the waiting thread every 25 ms: handles signals and reports progress. Either may raise.
void tick(const py::object& on_bytes, std::uint64_t done) {
  const py::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  if (!on_bytes.is_none()) on_bytes(done);
}

py::list sums_of(filler& self) {
  py::list out;
  for (const auto sum : self.take_sums()) {
    const auto high = py::int_(static_cast<std::uint64_t>(sum >> 64));
    out.append(high << py::int_(64) | py::int_(static_cast<std::uint64_t>(sum)));
  }
  return out;
}

}  // namespace

void bind_filler(py::module_& module) {
  py::class_<filler, std::shared_ptr<filler>> bound(module, "Filler",
                                                    "Fills memory from files, patterns and other memory.");
  bound
      .def("__init__", constructor(+[](runtime_ptr runtime, unsigned processors) {
             return std::make_shared<filler>(std::move(runtime), processors);
           }),
           is_constructor(), py::arg("runtime"), py::arg("processors") = 0,
           "processors: about how many threads to use; 0: as many as this process may use.")
      .def(
          "add_device",
          [](filler& self, int device, const std::vector<std::uintptr_t>& streams, std::uintptr_t staging,
             std::size_t size) {
            std::vector<hip::hipStream_t> handles;
            handles.reserve(streams.size());
            for (const auto stream : streams) handles.push_back(reinterpret_cast<hip::hipStream_t>(stream));
            self.add_device(device_id{device}, std::move(handles), staging, size);
          },
          py::arg("device"), py::arg("streams"), py::arg("staging"), py::arg("size"),
          "Adds a device with its streams and `size` bytes of pinned memory for staging.")
      .def(
          "load",
          [](filler& self, std::string name, int device, std::uintptr_t address, std::size_t size,
             int descriptor, std::uint64_t offset, std::size_t row, std::uint64_t stride, std::size_t begin,
             std::optional<std::size_t> sum, std::size_t each) {
            self.load(std::move(name), device_id{device}, address, size,
                      {descriptor, offset, row, stride, begin}, sum, each);
          },
          py::arg("name"), py::arg("device"), py::arg("address"), py::arg("size"), py::arg("descriptor"),
          py::arg("offset"), py::arg("row"), py::arg("stride"), py::arg("begin"), py::arg("sum") = py::none(),
          py::arg("each") = 0, no_gil(),
          "Loads from a file: rows of `row` bytes whose beginnings are `stride` apart, starting at the "
          "`begin`th of their bytes. device -1: host memory. sum: the number of the checksum of these bytes. "
          "each: "
          "the bytes of each of several allocations, which have checksums of their own; 0: it is one.")
      .def(
          "save",
          [](filler& self, std::string name, int device, std::uintptr_t address, std::size_t size,
             int descriptor, std::uint64_t offset, std::optional<std::size_t> sum, std::size_t each) {
            self.save(std::move(name), device_id{device}, address, size, {descriptor, offset, size, size, 0},
                      sum, each);
          },
          py::arg("name"), py::arg("device"), py::arg("address"), py::arg("size"), py::arg("descriptor"),
          py::arg("offset"), py::arg("sum") = py::none(), py::arg("each") = 0, no_gil())
      .def(
          "sum",
          [](filler& self, std::string name, std::uintptr_t address, std::size_t size, int descriptor,
             std::uint64_t offset, std::size_t sum, std::size_t each) {
            self.sum(std::move(name), address, size, {descriptor, offset, size, size, 0}, sum, each);
          },
          py::arg("name"), py::arg("address"), py::arg("size"), py::arg("descriptor"), py::arg("offset"),
          py::arg("sum"), py::arg("each") = 0, no_gil(),
          "Adds bytes of a file to a checksum. descriptor -1: of host memory, where `offset` counts as "
          "theirs.")
      .def(
          "fill",
          [](filler& self, std::string name, int device, std::uintptr_t address, std::size_t size,
             const py::bytes& pattern) {
            self.fill(std::move(name), device_id{device}, address, size, pattern);
          },
          py::arg("name"), py::arg("device"), py::arg("address"), py::arg("size"), py::arg("pattern"))
      .def(
          "copy",
          [](filler& self, std::string name, int device, std::uintptr_t to, int from_device,
             std::uintptr_t from, std::size_t size, bool staged) {
            self.copy(std::move(name), device_id{device}, to, device_id{from_device}, from, size, staged);
          },
          py::arg("name"), py::arg("device"), py::arg("to"), py::arg("from_device"), py::arg("from_"),
          py::arg("size"), py::arg("staged"), no_gil())
      .def_property_readonly("total", &filler::total_bytes)
      .def("take_sums", &sums_of, "The checksums of the last run, by number; once.")
      .def(
          "run",
          [](filler& self, const py::object& on_bytes) {
            const without_gil release;
            self.run([&](std::uint64_t done) { tick(on_bytes, done); });
          },
          py::arg("on_bytes") = py::none(),
          "Does the work and waits. on_bytes: called with the bytes done; its exception stops the work. "
          "HipError, OSError, ValueError.");
}

}  // namespace hipplan
