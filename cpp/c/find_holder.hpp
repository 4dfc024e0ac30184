// Finds a holder by its name, where hipplan/holders/names.py and guard.py do: in this user's folders of
// sockets, then by the lock of its name.
#pragma once

#include <chrono>
#include <string>

#include "descriptor.hpp"

namespace hipplan::c {

using time_point = std::chrono::steady_clock::time_point;

/// A connection to a holder of this user, which does not block. name: of the holder, or the path of its
/// socket. Throws failure: the name is not valid (HP451), there is no such holder (HP452), it accepts no
/// connection until the deadline (HP455), or whose the name is is in doubt (HP456).
[[nodiscard]] descriptor find_holder(const std::string& name, time_point until);

}  // namespace hipplan::c
