// The journal: Python decides the steps, the native side owns what they make.
#include "bindings.hpp"
#include "core/journal.hpp"

namespace hipplan {
namespace {

// A journal's end may call the driver and wait, so the GIL is given up for it.
struct end_without_gil {
  void operator()(journal* self) const {
    const without_gil release;
    delete self;
  }
};

using journal_class = py::class_<journal, std::unique_ptr<journal, end_without_gil>>;
using rights_list = std::vector<std::tuple<unsigned, int, unsigned>>;

std::vector<hip::hipMemAccessDesc> native(const rights_list& rights) {
  std::vector<hip::hipMemAccessDesc> out;
  out.reserve(rights.size());
  for (const auto& [type, id, flags] : rights) {
    out.push_back(
        {{static_cast<hip::hipMemLocationType>(type), id}, static_cast<hip::hipMemAccessFlags>(flags)});
  }
  return out;
}

std::pair<hip::hipMemoryAdvise, device_id> native(const std::pair<unsigned, int>& advice) {
  return {static_cast<hip::hipMemoryAdvise>(advice.first), device_id{advice.second}};
}

void bind_creation(journal_class& self) {
  self.def("create_allocation", &journal::create_allocation, py::arg("name"), py::arg("size"),
           py::arg("properties"), no_gil())
      .def("import_allocation", &journal::import_allocation, py::arg("name"), py::arg("size"),
           py::arg("descriptor"), no_gil())
      .def("reserve", &journal::reserve, py::arg("name"), py::arg("size"), py::arg("alignment"),
           py::arg("address"), no_gil())
      .def("map", &journal::map, py::arg("name"), py::arg("range"), py::arg("offset"), py::arg("allocation"),
           py::arg("size"), no_gil())
      .def(
          "create_device_buffer",
          [](journal& j, std::string name, int device, std::size_t size) {
            return j.create_device_buffer(std::move(name), device_id{device}, size);
          },
          py::arg("name"), py::arg("device"), py::arg("size"), no_gil())
      .def(
          "create_pinned_buffer",
          [](journal& j, std::string name, int device, std::size_t size, unsigned flags) {
            return j.create_pinned_buffer(std::move(name), device_id{device}, size, flags);
          },
          py::arg("name"), py::arg("device"), py::arg("size"), py::arg("flags"), no_gil())
      .def(
          "register_buffer",
          [](journal& j, std::string name, int device, std::uintptr_t address, std::size_t size,
             unsigned flags, entry_id region) {
            return j.register_buffer(std::move(name), device_id{device}, address, size, flags, region);
          },
          py::arg("name"), py::arg("device"), py::arg("address"), py::arg("size"), py::arg("flags"),
          py::arg("region") = 0, no_gil(),
          "region: of which entry it is a part, of map_file or map_anonymous.")
      .def(
          "create_managed_buffer",
          [](journal& j, std::string name, int device, std::size_t size, unsigned flags) {
            return j.create_managed_buffer(std::move(name), device_id{device}, size, flags);
          },
          py::arg("name"), py::arg("device"), py::arg("size"), py::arg("flags"), no_gil())
      .def(
          "create_stream",
          [](journal& j, std::string name, int device) {
            return j.create_stream(std::move(name), device_id{device});
          },
          py::arg("name"), py::arg("device"), no_gil())
      .def(
          "map_file",
          [](journal& j, std::string name, const std::filesystem::path& path, std::size_t size,
             bool read_only) { return j.map_file(std::move(name), path.native(), size, read_only); },
          py::arg("name"), py::arg("path"), py::arg("size"), py::arg("read_only"), no_gil(),
          "Host memory of a file. OSError, ValueError.")
      .def(
          "map_anonymous",
          [](journal& j, std::string name, std::size_t size, int numa_node, int pages) {
            return j.map_anonymous(std::move(name), size, numa_node, static_cast<huge_pages>(pages));
          },
          py::arg("name"), py::arg("size"), py::arg("numa_node"), py::arg("huge_pages"), no_gil(),
          "huge_pages: 0 none, 1 transparent, 2 of 2 MiB, 3 of 1 GiB. OSError.")
      .def(
          "enable_peer",
          [](journal& j, std::string name, int device, int peer) {
            return j.enable_peer(std::move(name), device_id{device}, device_id{peer});
          },
          py::arg("name"), py::arg("device"), py::arg("peer"), no_gil(),
          "0 when it was on already: nothing to undo.");
}

void bind_changes(journal_class& self) {
  self.def(
          "set_access",
          [](journal& j, entry_id mapping, const rights_list& rights, bool together) {
            j.set_access(mapping, native(rights), together);
          },
          py::arg("mapping"), py::arg("rights"), py::arg("together") = false, no_gil(),
          "rights: (location type, id, flags) each. together: of all that is mapped in the range.")
      .def(
          "advise",
          [](journal& j, entry_id buffer, std::size_t offset, std::size_t size, unsigned advice, int device) {
            j.advise(buffer, offset, size, static_cast<hip::hipMemoryAdvise>(advice), device_id{device});
          },
          py::arg("buffer"), py::arg("offset"), py::arg("size"), py::arg("advice"), py::arg("device"),
          no_gil())
      .def(
          "prefetch",
          [](journal& j, entry_id buffer, std::size_t offset, std::size_t size, int device, entry_id stream,
             int on) { j.prefetch(buffer, offset, size, device_id{device}, stream, device_id{on}); },
          py::arg("buffer"), py::arg("offset"), py::arg("size"), py::arg("device"), py::arg("stream"),
          py::arg("on"), no_gil(), "on: the stream's device; stream 0: its null stream.")
      .def(
          "attach",
          [](journal& j, entry_id buffer, entry_id stream, unsigned flags, int on) {
            j.attach(buffer, stream, flags, device_id{on});
          },
          py::arg("buffer"), py::arg("stream"), py::arg("flags"), py::arg("on"), no_gil())
      .def(
          "synchronize_stream",
          [](journal& j, entry_id stream, int on) { j.synchronize_stream(stream, device_id{on}); },
          py::arg("stream"), py::arg("on"), no_gil());
}

void bind_undoable_changes(journal_class& self) {
  self.def(
          "change_access",
          [](journal& j, entry_id mapping, const rights_list& now, const rights_list& before, bool together) {
            return j.change_access(mapping, native(now), native(before), together);
          },
          py::arg("mapping"), py::arg("now"), py::arg("before"), py::arg("together") = false, no_gil())
      .def(
          "change_advice",
          [](journal& j, entry_id buffer, std::size_t offset, std::size_t size, std::pair<unsigned, int> now,
             std::pair<unsigned, int> before) {
            return j.change_advice(buffer, offset, size, native(now), native(before));
          },
          py::arg("buffer"), py::arg("offset"), py::arg("size"), py::arg("now"), py::arg("before"), no_gil(),
          "now, before: (advice, device).")
      .def(
          "take_out",
          [](journal& j, entry_id mapping, entry_id range, entry_id allocation, const rights_list& before,
             bool together) { return j.take_out(mapping, range, allocation, native(before), together); },
          py::arg("mapping"), py::arg("range"), py::arg("allocation"), py::arg("before"),
          py::arg("together") = false, no_gil(), "Unmaps; an undo maps the same memory back.")
      .def("keep_changes", &journal::keep_changes, no_gil(), "From here on they are not taken back.");
}

}  // namespace

void bind_journal(py::module_& module) {
  journal_class self(module, "Journal", "Owns what a layout made, in order; undone in reverse.");
  using holder = std::unique_ptr<journal, end_without_gil>;
  self.def("__init__", constructor(+[](runtime_ptr runtime, const std::vector<int>& devices) {
             return holder(new journal(std::move(runtime), device_ids(devices)));
           }),
           is_constructor(), py::arg("runtime"), py::arg("devices") = std::vector<int>{})
      .def("__len__", &journal::size, no_gil())
      .def(
          "add_devices",
          [](journal& j, const std::vector<int>& devices) { j.add_devices(device_ids(devices)); },
          py::arg("devices"), no_gil(), "More devices that may reach what it owns.")
      .def("address", &journal::address, py::arg("entry"), no_gil())
      .def("size_bytes", &journal::size_bytes, py::arg("entry"), no_gil())
      .def("handle", &journal::handle, py::arg("allocation"), no_gil())
      .def("share", &journal::share, py::arg("allocation"), no_gil(),
           "A new descriptor for another process. HipError, OSError.")
      .def("stream_handle", &journal::stream_handle, py::arg("stream"), no_gil())
      .def("next", &journal::next, no_gil(), "The entry that would come next.")
      .def("contents", &journal::contents, no_gil(), "(entry, name, identity) of all that is owned.");
  bind_creation(self);
  bind_changes(self);
  bind_undoable_changes(self);
}

}  // namespace hipplan
