// Queries of devices and memory, as methods of Runtime.
#include "bindings.hpp"
#include "core/numa.hpp"
#include "core/queries.hpp"
#include "core/words.hpp"

namespace hipplan {
namespace {

using runtime_class = py::class_<hip::runtime, std::shared_ptr<hip::runtime>>;

// A query of one device.
template <auto Query>
auto on_device() {
  return [](hip::runtime& self, int device) { return Query(self, device_id{device}); };
}

// A query that returns text: a driver's bytes, which need not be UTF-8.
template <auto Query>
auto words_on_device() {
  return [](hip::runtime& self, int device) {
    std::string bytes;
    {
      const without_gil release;
      bytes = Query(self, device_id{device});
    }
    auto* const text = PyUnicode_DecodeUTF8(bytes.data(), static_cast<py::ssize_t>(bytes.size()), "replace");
    if (!text) throw py::error_already_set();
    return py::reinterpret_steal<py::str>(text);
  };
}

void bind_devices(runtime_class& runtime) {
  runtime.def("device_count", &device_count, no_gil())
      .def("current_device", &current_device, no_gil())
      .def("driver_version", &driver_version, no_gil())
      .def("device_name", words_on_device<device_name>(), py::arg("device"))
      .def("device_arch", words_on_device<device_arch>(), py::arg("device"))
      .def(
          "device_uuid",
          [](hip::runtime& self, int device) {
            std::string raw;
            {
              const without_gil release;
              raw = device_uuid(self, device_id{device});
            }
            return py::bytes(raw);
          },
          py::arg("device"))
      .def("pci_bus_id", words_on_device<pci_bus_id>(), py::arg("device"))
      .def("memory_info", on_device<memory_info>(), py::arg("device"), no_gil(), "(free, total) in bytes.")
      .def("synchronize", on_device<synchronize>(), py::arg("device"), no_gil())
      .def(
          "device_attribute",
          [](hip::runtime& self, int device, const std::string& attribute) {
            const auto number = number_of(device_attribute_words, attribute);
            return device_attribute(self, device_id{device}, static_cast<int>(number));
          },
          py::arg("device"), py::arg("attribute"), no_gil())
      .def(
          "can_access_peer",
          [](hip::runtime& self, int device, int peer) {
            return can_access_peer(self, device_id{device}, device_id{peer});
          },
          py::arg("device"), py::arg("peer"), no_gil())
      .def(
          "link",
          [](hip::runtime& self, int from, int to) {
            const auto link_info = link(self, device_id{from}, device_id{to});
            using words = std::optional<std::pair<std::string, int>>;
            return link_info ? words({text_of(link_words, static_cast<std::uint64_t>(link_info->first)),
                                      link_info->second})
                             : std::nullopt;
          },
          py::arg("from_"), py::arg("to"), no_gil(),
          "(type, hops), or None if the runtime does not report it.");
}

void bind_memory(runtime_class& runtime) {
  runtime.def("granularity", &granularity, py::arg("properties"), py::arg("recommended"), no_gil())
      .def(
          "access",
          [](hip::runtime& self, int device, std::uintptr_t address) {
            return access(self, device_id{device}, address);
          },
          py::arg("device"), py::arg("address"), no_gil(), "0 none, 1 read, 3 read and write.")
      .def("properties_of", &properties_of, py::arg("handle"), no_gil())
      .def(
          "range_attribute",
          [](hip::runtime& self, std::uintptr_t address, std::size_t size, const std::string& attribute) {
            const auto number = number_of(range_attribute_words, attribute);
            return range_attribute(self, address, size, static_cast<hip::hipMemRangeAttribute>(number));
          },
          py::arg("address"), py::arg("size"), py::arg("attribute"), no_gil())
      .def("accessed_by", &accessed_by, py::arg("address"), py::arg("size"), no_gil())
      .def(
          "pointer_attributes",
          [](hip::runtime& self, std::uintptr_t address) { return pointer_attributes(self, address); },
          py::arg("address"), no_gil())
      .def("address_range_of", &address_range_of, py::arg("address"), no_gil(), "(base, size).")
      .def(
          "host_flags",
          [](hip::runtime& self, std::uintptr_t address) {
            const auto bits = host_flags(self, address);
            std::vector<std::string> out;
            for (const auto& flag : pinned_words) {
              if (bits & flag.number) out.emplace_back(flag.text);
            }
            return out;
          },
          py::arg("address"), no_gil())
      .def("dma_buf_of", &dma_buf_of, py::arg("address"), py::arg("size"), no_gil())
      .def("device_pointer", &device_pointer, py::arg("host_address"), no_gil());
}

/// The word for a number that rows read back. what: the kind of number.
std::string word_of(const std::string& what, std::uint64_t number) {
  if (what == "access") return text_of(access_words, number);
  if (what == "type") return text_of(allocation_type_words, number);
  if (what == "location") return text_of(location_words, number);
  if (what == "shareable") return text_of(handle_type_words, number);
  throw std::invalid_argument("no words for " + what);
}

}  // namespace

void bind_queries(py::module_& module) {
  module.def(
      "page_nodes", [](std::uintptr_t address, std::size_t size) { return page_nodes(address, size); },
      py::arg("address"), py::arg("size"), no_gil(),
      "NUMA node -> how many pages of a range are on it. Counts pages that exist and whose node the kernel "
      "reports.");
  module.def("word_of", &word_of, py::arg("what"), py::arg("number"),
             "The word of plans for one of HIP's numbers; the number as text if there is none. ValueError.");
  py::class_<allocation_properties>(module, "AllocationProperties", "The properties of a hipMemCreate.")
      .def("__init__", constructor(+[](int device, const std::string& location) {
             const auto number = number_of(location_words, location);
             return std::make_unique<allocation_properties>(allocation_properties{
                 .location_type = static_cast<hip::hipMemLocationType>(number), .location_id = device});
           }),
           is_constructor(), py::arg("device"), py::arg("location") = "device")
      .def_property_readonly("device", [](const allocation_properties& self) { return self.location_id; })
      .def_property_readonly("location", [](const allocation_properties& self) {
        return text_of(location_words, self.location_type);
      });
  using attributes = hip::hipPointerAttribute_t;
  py::class_<attributes>(module, "PointerAttributes", "hipPointerGetAttributes.")
      .def_property_readonly("kind",
                             [](const attributes& self) { return text_of(memory_kind_words, self.type); })
      .def_property_readonly("device", [](const attributes& self) { return self.device; })
      .def_property_readonly("managed", [](const attributes& self) { return self.isManaged != 0; })
      .def_property_readonly("flags", [](const attributes& self) { return self.allocationFlags; });
  auto runtime = py::reinterpret_borrow<runtime_class>(module.attr("Runtime"));
  bind_devices(runtime);
  bind_memory(runtime);
}

}  // namespace hipplan
