#!/bin/sh
# Linters and type checks: everything that needs no run. Usage: check.sh FOLDER_OF_TOOLS
set -eu
bin=$(cd "$1" && pwd)
cpp=$(git ls-files 'cpp/*.hpp' 'cpp/*.cpp' 'cpp/*.h' 'tests/*.cpp' 'tests/*.hpp' 'benchmarks/*.cpp')

echo "ruff";         "$bin/ruff" check .; "$bin/ruff" format --check .
echo "phrases";      "$bin/python" tools/phrases.py
echo "mypy";         "$bin/mypy"
echo "stubtest";     "$bin/stubtest" --allowlist tools/stubtest.allow --ignore-unused-allowlist hipplan._core
echo "clang-format"; "$bin/clang-format" --dry-run --Werror $cpp
echo "clang-tidy"
# A database with a command for each source: the build reads several at once.
"$bin/cmake" -S . -B build/check -G Ninja -DCMAKE_MAKE_PROGRAM="$bin/ninja" -DCMAKE_CXX_COMPILER=c++ \
  -DCMAKE_UNITY_BUILD=OFF -DPython_EXECUTABLE="$bin/python" \
  -Dpybind11_DIR="$("$bin/python" -m pybind11 --cmakedir)" >/dev/null
git ls-files 'cpp/*.cpp' | grep -v abi_check \
  | xargs -P "$(nproc)" -n 4 "$bin/clang-tidy" --quiet -p build/check 2>/dev/null
echo "all checks passed"
