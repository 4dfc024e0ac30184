// The ledger: everything alive in the driver as JSON, so that a test can prove that nothing leaked.
#pragma once

#include <string>

namespace kfdsim {

/// The ledger of this process. Call it under mutex().
[[nodiscard]] std::string ledger();
/// Arranges for the ledger, with the process's id, to be appended to KFDSIM_LEDGER_AT_EXIT (a path, or
/// "stderr") after the program's exit handlers.
void write_ledger_at_exit();

}  // namespace kfdsim
