// The ledger: everything alive as JSON, so that a test can prove that nothing leaked.
#pragma once

#include <string>

#include "machine.hpp"

namespace hipsim {

[[nodiscard]] std::string ledger(const machine& m);
/// Arranges for HIPSIM_LEDGER_AT_EXIT (a path, or "stderr") to be written when the process ends.
void write_ledger_at_exit();

}  // namespace hipsim
