// The compiled half of hipplan. Python's face of it: hipplan/_core.pyi.
#include "bindings.hpp"
#include "core/leak_log.hpp"
#include "hip/runtime.hpp"

PYBIND11_MODULE(_core, module) {
  using namespace hipplan;
  module.doc() =
      "RAII owners of HIP memory, and the change from one state of them to the next (private; use hipplan).";
  module.attr("__version__") = HIPPLAN_VERSION;
  module.attr("compiler") = HIPPLAN_COMPILER;
  module.def("take_leaks", &take_leaks, "Takes what destructors could not give back, a line each.");
  module.def("take_leaks_here", &take_leaks_here, "Of those the calling thread's.");
  module.def("shutdown", &hip::runtime::shutdown, "From here on no owner calls the driver.");
  bind_errors(module);
  bind_runtime(module);
  bind_queries(module);
  bind_views(module);  // before what speaks of leases
  bind_undo(module);
  bind_change(module);
  bind_filler(module);
  bind_transfers(module);
}
