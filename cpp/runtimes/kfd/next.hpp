// The C library's own functions, which this library replaces.
#pragma once

#include <dlfcn.h>

namespace kfdsim {

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace kfdsim
