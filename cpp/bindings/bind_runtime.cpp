// The runtime: opening, faults and traces, the simulator's own calls, moving bytes.
#include <cstring>

#include "bindings.hpp"
#include "core/mapped_memory.hpp"
#include "core/reserved_ranges.hpp"
#include "core/transfer.hpp"
#include "hip/runtime.hpp"

namespace hipplan {
namespace {

using runtime_class = py::class_<hip::runtime, std::shared_ptr<hip::runtime>>;

template <class Function>
Function* simulator_call(const hip::runtime& runtime, const char* name) {
  if (auto* found = reinterpret_cast<Function*>(runtime.symbol(name))) return found;
  throw std::invalid_argument(runtime.path() + " is not the simulator: it has no " + name);
}

void configure(hip::runtime& runtime, const std::string& profile) {
  if (simulator_call<int(const char*)>(runtime, "hipsim_configure")(profile.c_str()) == 0) {
    runtime.read_version();  // another machine may have another version
    return;
  }
  throw std::invalid_argument(simulator_call<const char*()>(runtime, "hipsim_last_message")());
}

std::string ledger(const hip::runtime& runtime) {
  auto* const read = simulator_call<std::size_t(char*, std::size_t)>(runtime, "hipsim_ledger");
  std::string text;
  for (std::size_t needed = read(nullptr, 0); needed > text.size();) {  // it may grow between two calls
    text.resize(needed);
    needed = read(text.data(), text.size() + 1);  // as snprintf: a std::string has room for the final zero
  }
  text.resize(std::strlen(text.c_str()));
  return text;
}

/// libhipcuda's reason why there is no device; empty for other runtimes.
py::str message(const hip::runtime& runtime) {
  const auto get_message = reinterpret_cast<const char* (*)()>(runtime.symbol("hipcuda_message"));
  return file_system_text(get_message ? get_message() : "");
}

py::list loaded_libraries(const std::string& prefix) {
  const auto found = [&] {
    const without_gil release;
    return hip::loaded_libraries(prefix);
  }();
  py::list out;
  for (const auto& path : found) out.append(file_system_text(path));
  return out;
}

void write(hip::runtime& runtime, std::uintptr_t address, std::string_view bytes) {
  copy(runtime, address, reinterpret_cast<std::uintptr_t>(bytes.data()), bytes.size());
}

std::string read(hip::runtime& runtime, std::uintptr_t address, std::size_t size_bytes) {
  std::string out(size_bytes, '\0');
  copy(runtime, reinterpret_cast<std::uintptr_t>(out.data()), address, size_bytes);
  return out;
}

void bind_faults(runtime_class& runtime) {
  runtime
      .def(
          "arm_faults",
          [](hip::runtime& self, const std::string& rules) {
            self.intercepts().arm(hip::parse_fault_rules(rules));
          },
          py::arg("rules"), no_gil(),
          "Fails chosen calls: 'hipMemMap@3=hipErrorOutOfMemory; *@10+=999'. Empty disarms. ValueError.")
      .def(
          "faults_fired", [](hip::runtime& self) { return self.intercepts().fired(); }, no_gil())
      .def(
          "calls_counted", [](hip::runtime& self) { return self.intercepts().calls(); }, no_gil(),
          "Calls since arm_faults, while armed.")
      .def(
          "trace_to",
          [](hip::runtime& self, const std::filesystem::path& path) {
            self.intercepts().trace_to(path.native());
          },
          py::arg("path"), no_gil(), "Appends a JSON line per driver call; an empty path stops. OSError.");
}

void bind_bytes(runtime_class& runtime) {
  runtime
      .def(
          "fill",
          [](hip::runtime& self, std::uintptr_t address, int value, std::size_t size) {
            fill(self, address, value, size);
          },
          py::arg("address"), py::arg("value"), py::arg("size"), no_gil())
      .def(
          "fill_on",
          [](hip::runtime& self, int device, std::uintptr_t address, int value, std::size_t size) {
            fill_on(self, device_id{device}, address, value, size);
          },
          py::arg("device"), py::arg("address"), py::arg("value"), py::arg("size"), no_gil())
      .def(
          "prefetch",
          [](hip::runtime& self, std::uintptr_t address, std::size_t size, int to, int on) {
            prefetch(self, address, size, device_id{to}, device_id{on});
          },
          py::arg("address"), py::arg("size"), py::arg("to"), py::arg("on"), no_gil())
      .def("copy", &copy, py::arg("to"), py::arg("from_"), py::arg("size"), no_gil())
      .def(
          "copy_peer",
          [](hip::runtime& self, std::uintptr_t to, int to_device, std::uintptr_t from, int from_device,
             std::size_t size) {
            copy_peer(self, to, device_id{to_device}, from, device_id{from_device}, size);
          },
          py::arg("to"), py::arg("to_device"), py::arg("from_"), py::arg("from_device"), py::arg("size"),
          no_gil())
      .def(
          "write",
          [](hip::runtime& self, std::uintptr_t address, const py::bytes& data) {
            const std::string_view bytes = data;
            const without_gil release;
            write(self, address, bytes);
          },
          py::arg("address"), py::arg("data"))
      .def(
          "read",
          [](hip::runtime& self, std::uintptr_t address, std::size_t size) {
            std::string out;
            {
              const without_gil release;
              out = read(self, address, size);
            }
            return py::bytes(out);
          },
          py::arg("address"), py::arg("size"));
}

/// As far as the process and hipplan know: a driver may refuse others.
std::vector<std::size_t> in_use(const std::vector<std::uintptr_t>& addresses, std::size_t size_bytes) {
  const auto mapped = mapped_memory::now();
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const bool ours = !reserved_ranges::who_has(addresses[i], size_bytes, 0).empty();
    if (ours || !mapped.accessible_at(addresses[i], size_bytes).empty()) out.push_back(i);
  }
  return out;
}

}  // namespace

void bind_runtime(py::module_& module) {
  module.def("thread_retries", &hip::runtime::retries_of_this_thread,
             "Calls of this thread that were repeated because the driver returned NotReady.");
  module.def("loaded_libraries", &loaded_libraries, py::arg("prefix"),
             "Paths of loaded libraries whose file name starts with prefix.");
  module.def(
      "in_use", &in_use, py::arg("addresses"), py::arg("size_bytes"), no_gil(),
      "Indices of the addresses from which on a range of this size would lie in memory of this process.");
  module.def(
      "buffer_address",
      [](const py::buffer& object) { return reinterpret_cast<std::uintptr_t>(object.request().ptr); },
      py::arg("object"), "Where the memory of an object with the buffer protocol begins.");
  runtime_class runtime(module, "Runtime", "A shared library with HIP's C ABI.");
  runtime
      .def_static(
          "open", [](const std::filesystem::path& path) { return hip::runtime::open(path.native()); },
          py::arg("path"), no_gil(), "Opens a library and fills the function table. RuntimeUnusable.")
      .def_property_readonly("path", [](const hip::runtime& self) { return file_system_text(self.path()); })
      .def_property_readonly("version", &hip::runtime::version)
      .def_property_readonly("message", &message, "Why the cuda runtime has no device; else empty.")
      .def_property_readonly("retries", &hip::runtime::retries)
      .def(
          "set_retry_pause",
          [](hip::runtime& self, std::uint32_t us) { self.set_retry_pause(std::chrono::microseconds(us)); },
          py::arg("us"),
          "Microseconds before the first retry of a call that returned NotReady; default 1,000.")
      .def("configure", &configure, py::arg("profile"), no_gil(),
           "Simulator only: becomes another machine. ValueError while objects are alive.")
      .def("ledger", &ledger, no_gil(), "Simulator only: everything alive, as JSON.");
  bind_faults(runtime);
  bind_bytes(runtime);
}

}  // namespace hipplan
