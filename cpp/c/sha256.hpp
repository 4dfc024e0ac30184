// SHA-256, of which a lock's address has some digits.
#pragma once

#include <string>
#include <string_view>

namespace hipplan::c {

/// In hexadecimal digits. Throws std::bad_alloc.
[[nodiscard]] std::string sha256(std::string_view text);

}  // namespace hipplan::c
