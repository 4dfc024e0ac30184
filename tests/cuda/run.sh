#!/bin/sh
# Builds libhipcuda and its smoke test with one compiler and no CMake, and runs them on this machine's GPUs.
#   tests/cuda/run.sh [BUILD-DIRECTORY]
# CXX chooses the compiler. With a cuda.h (CUDA_HOME, or /usr/local/cuda) the driver ABI is checked first;
# with a python3 that has PyTorch, sharing with PyTorch is tested too.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-$(mktemp -d)}
cxx=${CXX:-g++}
flags="-std=c++20 -O2 -fPIC -Wall -Wextra -Wshadow -Werror -I$root/cpp"
mkdir -p "$build"

cuda=$root/cpp/runtimes/cuda
toolkit=${CUDA_HOME:-/usr/local/cuda}
if [ -e "$toolkit/include/cuda.h" ]; then
  $cxx $flags -isystem "$toolkit/include" -fsyntax-only "$cuda/cuda_abi_check.cpp"
  echo "driver ABI as in $toolkit/include/cuda.h"
fi
sources=$(ls "$cuda"/*.cpp | grep -v abi_check)
$cxx $flags -fvisibility=hidden -shared -Wl,--no-undefined -Wl,-soname,libhipcuda.so $sources \
  -o "$build/libhipcuda.so" -ldl -lpthread
$cxx $flags "$root"/tests/cuda/*.cpp "$cuda/driver_table.cpp" -o "$build/smoke" -ldl -lpthread

"$build/smoke" "$build/libhipcuda.so"
if python3 -c 'import torch' 2>/dev/null; then
  python3 "$root/tests/cuda/with_torch.py" "$build/libhipcuda.so"
fi
