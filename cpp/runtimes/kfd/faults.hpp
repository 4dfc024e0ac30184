// Ioctls that fail on demand, by rules as HIPSIM_FAIL has them: alloc_memory_of_gpu@3=ENOMEM.
#pragma once

#include <cstdint>
#include <string>

namespace kfdsim {

/// Why the rules of KFDSIM_FAIL cannot be read; empty if they can.
[[nodiscard]] const std::string& wrong_rules();
/// Replaces the rules and counts from zero. Throws std::invalid_argument.
void arm(const char* rules);
/// The errno of a call that shall fail now, or 0. Not under mutex(): a rule may wait.
[[nodiscard]] int failing(const char* call);
[[nodiscard]] std::uint64_t failed_calls();
[[nodiscard]] std::uint64_t counted_calls();

/// In a forked child, which has rules of its own: those of KFDSIM_FAIL, from the first call on.
void forget_rules();

}  // namespace kfdsim
