// The ledger: everything alive as JSON, so that a test can prove that nothing leaked.
#pragma once

#include <string>

#include "machine.hpp"

namespace hipsim {

[[nodiscard]] std::string ledger(const machine& m);
/// Arranges for the ledger, with the process's id, to be appended to HIPSIM_LEDGER_AT_EXIT (a path, or
/// "stderr") when the library is finalised: at the end of the process, or when it is unloaded.
void write_ledger_at_exit();

}  // namespace hipsim
