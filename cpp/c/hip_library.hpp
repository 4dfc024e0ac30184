// The HIP library that a process uses: the one it is told, else the one it has loaded, else one of a kind.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "hip/runtime.hpp"

namespace hipplan::c {

/// amd, cuda or sim. The simulator may have the name of AMD's library.
[[nodiscard]] std::string family_of(const hip::runtime& library);

/// told: a path, or amd, cuda, sim; empty: HIPPLAN_RUNTIME, if that is set. family: returns that of the
/// holder's memory; called only if this process has loaded no HIP library and is told none. Throws failure
/// (HP407), and what family() throws.
[[nodiscard]] std::shared_ptr<hip::runtime> open_library(const std::string& told,
                                                         const std::function<std::string()>& family);

}  // namespace hipplan::c
