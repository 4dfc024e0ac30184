// KFDSIM_REFUSE_KERNELS: a launch of a kernel is an error, because none is run.
#pragma once

#include <string>

namespace kfdsim {

[[nodiscard]] bool launches_are_refused();
/// From now on each function of libamdhip64 that launches kernels returns hipErrorNotSupported, and that is
/// the thread's last error. Does nothing without KFDSIM_REFUSE_KERNELS, or as long as libamdhip64 is not
/// loaded. Returns why it is not possible; empty if it is.
[[nodiscard]] std::string refuse_launches();

}  // namespace kfdsim
