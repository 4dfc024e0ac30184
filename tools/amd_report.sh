#!/bin/sh
# Everything a machine with AMD GPUs can tell about hipplan, in one file to send in.
#   make amd                 or: tools/amd_report.sh [FILE] [PART...], the parts being those of tests/hardware/run.sh
# Needs ROCm 6.1 or later and this repository. HIPPLAN_RUNTIME=PATH takes another library with HIP's C ABI.
# The exit code is the number of parts that failed; there is a report all the same.
root=$(cd "$(dirname "$0")/.." && pwd)
file=${1:-$root/hipplan-amd-report.tar.gz}
[ $# -gt 0 ] && shift
folder=$(mktemp -d)
HIPPLAN_RUNTIME=${HIPPLAN_RUNTIME:-amd}
HIPPLAN_CYCLES=${HIPPLAN_CYCLES:-2000}
HIPPLAN_COMMIT=$(git -C "$root" rev-parse --short HEAD 2>/dev/null)
export HIPPLAN_RUNTIME HIPPLAN_CYCLES HIPPLAN_COMMIT
export PYTHON=${PYTHON:-$root/.venv/bin/python}
{ "$root/tests/hardware/run.sh" "$folder" "$@"; echo $? >"$folder/failed.txt"; } | tee "$folder/summary.txt"
failed=$(cat "$folder/failed.txt")
{
  date -u +%Y-%m-%d
  uname -r
  for version in /opt/rocm/.info/version "${ROCM_PATH:-/opt/rocm}/.info/version"; do
    [ ! -e "$version" ] || { echo "ROCm $(cat "$version")"; break; }
  done
  [ ! -e /sys/module/amdgpu/version ] || echo "amdgpu $(cat /sys/module/amdgpu/version)"
} >"$folder/system.txt"
tar -czf "$file" -C "$folder" . || failed=1
rm -rf "$folder"
echo "report: $file"
[ "$failed" = 0 ] || echo "$failed part(s) failed: such a report is the more welcome"
exit "$failed"
