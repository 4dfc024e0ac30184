// An object in words.
#pragma once

#include <cstdint>
#include <string>

namespace hipplan {

/// Its place in the order of creation; its name; its kind, size and address.
struct described {
  std::uint64_t made;
  std::string name;
  std::string identity;
};

}  // namespace hipplan
