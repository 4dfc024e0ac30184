#include "units.hpp"

#include <cstdio>

namespace hipplan {

std::string hexadecimal(std::uintptr_t value) {
  char out[2 + 16 + 1];
  std::snprintf(out, sizeof out, "0x%llx", static_cast<unsigned long long>(value));
  return out;
}

}  // namespace hipplan
