#!/bin/sh
# Linters and type checks: everything that needs no run. Usage: check.sh FOLDER_OF_TOOLS
set -eu
bin=$1
cpp=$(git ls-files 'cpp/*.hpp' 'cpp/*.cpp' 'cpp/*.h' 'tests/*.cpp' 'benchmarks/*.cpp')

echo "ruff";         "$bin/ruff" check .; "$bin/ruff" format --check .
echo "mypy";         "$bin/mypy"
echo "stubtest";     "$bin/stubtest" --allowlist tools/stubtest.allow --ignore-unused-allowlist hipplan._core
echo "clang-format"; "$bin/clang-format" --dry-run --Werror $cpp
echo "clang-tidy";   git ls-files 'cpp/*.cpp' | grep -v abi_check \
  | xargs -P "$(nproc)" -n 4 "$bin/clang-tidy" --quiet -p "${BUILD:-build/editable}" 2>/dev/null
echo "all checks passed"
