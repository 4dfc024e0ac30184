// Asynchronous copies and fills.
#include <pybind11/stl.h>

#include "bindings.hpp"
#include "core/background.hpp"
#include "core/queued_work.hpp"

namespace hipplan {
namespace {

hip::hipStream_t stream_of(std::uintptr_t handle) { return reinterpret_cast<hip::hipStream_t>(handle); }

std::vector<queued_work::copy> copies_of(const py::sequence& all) {
  std::vector<queued_work::copy> out;
  out.reserve(all.size());
  for (const auto& item : all) {
    const auto row = py::cast<py::tuple>(item);
    out.push_back({row[0].cast<std::uintptr_t>(), device_id{row[1].cast<int>()},
                   row[2].cast<std::uintptr_t>(), device_id{row[3].cast<int>()}, row[4].cast<std::size_t>()});
  }
  return out;
}

std::vector<queued_work::fill> fills_of(const py::sequence& all) {
  std::vector<queued_work::fill> out;
  out.reserve(all.size());
  for (const auto& item : all) {
    const auto row = py::cast<py::tuple>(item);
    out.push_back({row[0].cast<std::uintptr_t>(), row[1].cast<std::size_t>(), row[2].cast<py::bytes>()});
  }
  return out;
}

std::shared_ptr<queued_work> queue(runtime_ptr runtime, std::string name, int device, std::uintptr_t stream,
                                   const py::sequence& copies, const py::sequence& fills) {
  const auto all_copies = copies_of(copies);
  const auto all_fills = fills_of(fills);
  std::unique_ptr<queued_work> made;
  {
    const without_gil release;
    made = queued_work::begin(std::move(runtime), std::move(name), device_id{device}, stream_of(stream),
                              all_copies, all_fills);
  }
  return ended_without_gil(made.release());
}

std::shared_ptr<background> start(runtime_ptr runtime, std::shared_ptr<filler> work, int device,
                                  std::uintptr_t stream) {
  auto made =
      std::make_unique<background>(std::move(runtime), std::move(work), device_id{device}, stream_of(stream));
  return ended_without_gil(made.release());
}

}  // namespace

void bind_transfers(py::module_& module) {
  py::class_<queued_work, std::shared_ptr<queued_work>>(
      module, "QueuedWork", "Copies and fills in a stream, with an event after them.")
      .def("__init__", constructor(&queue), is_constructor(), py::arg("runtime"), py::arg("name"),
           py::arg("device"), py::arg("stream"), py::arg("copies"), py::arg("fills"))
      .def("done", &queued_work::done, no_gil());
  py::class_<background, std::shared_ptr<background>>(
      module, "Background",
      "A filler's work on a thread of its own, after the work that a stream already holds.")
      .def("__init__", constructor(&start), is_constructor(), py::arg("runtime"), py::arg("filler"),
           py::arg("device"), py::arg("stream"), "The caller must not use the filler afterwards.")
      .def("done", &background::done, no_gil())
      .def("stop", &background::stop, no_gil());
}

}  // namespace hipplan
