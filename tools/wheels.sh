#!/bin/sh
# Builds hipplan's wheels into a folder: the pure-Python one, and for each Python given a manylinux one with the
# compiled part, the simulator and the CUDA runtime. Usage: wheels.sh PYTHON_WITH_TOOLS FOLDER [PYTHON ...]
# PYTHON_WITH_TOOLS has the dependency group `wheels`. cibuildwheel (pyproject.toml) does the same for every Python and
# for aarch64, in images old enough for every Linux; this takes the compiler and the C library of the machine it runs on.
set -eu
tools=$1
folder=$2
shift 2
plan=$PWD/plans/quickstart.yaml

mkdir -p "$folder"
rm -f "$folder"/hipplan-*.whl
echo "pure Python"
HIPPLAN_PURE=1 "$tools" -m pip wheel --quiet --no-deps --wheel-dir "$folder" .

for python in "$@"; do
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
  python=$("$python" -c 'import sys; print(sys.executable)')  # pip --python takes a path
  echo "Python $version: compiling, about two minutes"
  built=$(mktemp -d)
  "$tools" -m pip --python "$python" wheel --quiet --no-deps --wheel-dir "$built" .
  "$tools" -m auditwheel show "$built"/*.whl >"$built/needs"
  if grep -iE 'lib(amdhip|hsa|cuda|nvidia|hiprtc)' "$built/needs"; then
    echo "the wheel must load where no GPU library is installed" >&2
    exit 1
  fi
  PATH="$(dirname "$tools"):$PATH" "$tools" -m auditwheel repair --wheel-dir "$folder" "$built"/*.whl >"$built/log" 2>&1 \
    || { cat "$built/log" >&2; exit 1; }

  echo "Python $version: the quickstart from that wheel, on the simulator"
  "$python" -m venv "$built/venv"
  "$tools" -m pip --python "$built/venv/bin/python" install --quiet "$folder"/hipplan-*-"cp${version%.*}${version#*.}"-*.whl
  (cd "$built" && venv/bin/hipplan apply "$plan" --once --runtime sim --quiet)
  rm -rf "$built"
done
ls -l "$folder"
