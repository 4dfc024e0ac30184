#pragma once

#include "machine.hpp"

namespace standin {

int open_driver(int driver);  // a new descriptor for it

}  // namespace standin
