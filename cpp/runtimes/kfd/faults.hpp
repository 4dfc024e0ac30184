// Ioctls that fail on demand, by rules in the syntax of HIPSIM_FAIL: alloc_memory_of_gpu@3=ENOMEM.
#pragma once

#include <cstdint>
#include <string>

namespace kfdsim {

/// Why the rules of KFDSIM_FAIL are invalid; empty if they are valid.
[[nodiscard]] const std::string& wrong_rules();
/// Replaces the rules and counts from zero. Throws std::invalid_argument.
void arm(const char* rules);
/// The errno with which a call has to fail now, or 0. Call it without mutex(): a rule may wait.
[[nodiscard]] int failing(const char* call);
[[nodiscard]] std::uint64_t failed_calls();
[[nodiscard]] std::uint64_t counted_calls();

/// Called in a forked child: it reads KFDSIM_FAIL again and counts from its first call.
void forget_rules();

}  // namespace kfdsim
