#!/bin/sh
# Linters and type checks: everything that needs no run. Usage: check.sh FOLDER_OF_TOOLS
set -eu
bin=$(cd "$1" && pwd)
cpp=$(git ls-files 'cpp/*.hpp' 'cpp/*.cpp' 'cpp/*.h' 'tests/*.cpp' 'tests/*.hpp' 'benchmarks/*.cpp')

echo "ruff";         "$bin/ruff" check .; "$bin/ruff" format --check .
echo "phrases";      "$bin/python" tools/phrases.py
echo "docs";         "$bin/python" docs/generate.py --check
echo "mypy";         "$bin/mypy"
echo "stubtest";     "$bin/stubtest" --allowlist tools/stubtest.allow --ignore-unused-allowlist hipplan._core
echo "clang-format"; "$bin/clang-format" --dry-run --Werror $cpp
echo "clang-tidy"
# It reads the units of the build, in which several sources share their headers: that takes a quarter of the time.
# tests/test_house_rules.py looks for what clang-tidy sees only in a file by itself: names that are taken over for nothing.
"$bin/cmake" -S . -B build/check -G Ninja -DCMAKE_MAKE_PROGRAM="$bin/ninja" -DCMAKE_CXX_COMPILER=c++ \
  -DCMAKE_UNITY_BUILD=ON -DPython_EXECUTABLE="$bin/python" -Dpybind11_DIR="$("$bin/python" -m pybind11 --cmakedir)" >/dev/null
sed -n 's/^  "file": "\(.*\)".*/\1/p' build/check/compile_commands.json | grep -v abi_check \
  | xargs -P "$(nproc)" -n 1 "$bin/clang-tidy" --quiet --checks=-bugprone-suspicious-include -p build/check 2>/dev/null
echo "all checks passed"
