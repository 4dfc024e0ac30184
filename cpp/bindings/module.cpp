// The compiled part of hipplan. Its types for Python: hipplan/_core.pyi.
#include "bindings.hpp"
#include "core/leak_log.hpp"
#include "hip/runtime.hpp"
#include "interpreter.hpp"

PYBIND11_MODULE(_core, module) {
  using namespace hipplan;
  module.doc() =
      "RAII owners of HIP memory, and the change from one state of them to the next (private; use hipplan).";
  module.attr("__version__") = HIPPLAN_VERSION;
  module.attr("compiler") = HIPPLAN_COMPILER;
  module.def("take_leaks", &take_leaks, "Removes and returns the lines of what destructors could not free.");
  module.def("take_leaks_here", &take_leaks_here, "The same for the calling thread's lines.");
  module.def("shutdown", &hip::runtime::shutdown, "From here on no owner calls the driver.");
  module.def(
      "check_signals_every", [](std::uint32_t ms) { ms_between_signals = ms; }, py::arg("ms"),
      "How long a series of driver calls may run before signals are checked; 5 ms unless set.");
  bind_errors(module);
  bind_runtime(module);
  bind_queries(module);
  bind_views(module);  // before functions whose signatures contain leases
  bind_undo(module);
  bind_change(module);
  bind_filler(module);
  bind_transfers(module);
}
