#pragma once

#include "machine.hpp"

namespace standin {

int open_driver(int driver);  // a new descriptor for it

constexpr u64 kForeignOffset =
    1ull << 46;  // set in offsets for mmap that are meant for another process's file

}  // namespace standin
