#!/bin/sh
# Everything that can be said on a machine with GPUs, in one go, into one folder.
#   tests/hardware/run.sh [FOLDER] [PART...]
# Parts: smoke conformance hardware addresses holders endurance benchmarks experiments; all of them when none is named.
# HIPPLAN_RUNTIME: cuda (default), amd, sim or a path. PYTHON: a Python that has hipplan and pytest installed.
# A part that fails does not stop the others; the exit code is the number of parts that failed.
root=$(cd "$(dirname "$0")/../.." && pwd)
out=$(mkdir -p "${1:-hardware-report}" && cd "${1:-hardware-report}" && pwd)
[ $# -gt 0 ] && shift
parts=${*:-smoke conformance hardware addresses holders endurance benchmarks experiments}
python=${PYTHON:-python3}
HIPPLAN_RUNTIME=${HIPPLAN_RUNTIME:-cuda}
export HIPPLAN_RUNTIME
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
failed=0
cd "$root" || exit 1

# run SECONDS NAME COMMAND...: output into NAME.log, its last lines here.
run() {
  limit=$1 name=$2
  shift 2
  began=$(date +%s)
  timeout "$limit" "$@" >"$out/$name.log" 2>&1
  code=$?
  [ $code -eq 0 ] || failed=$((failed + 1))
  echo "== $name: exit $code after $(($(date +%s) - began)) s"
  tail -n "${show:-4}" "$out/$name.log" | cut -c1-200
}

tests() {
  limit=$1 name=$2
  shift 2
  run "$limit" "$name" "$python" -m pytest -p no:cacheprovider -q "$@"
}

for part in $parts; do
  case $part in
  smoke)
    [ "$HIPPLAN_RUNTIME" != cuda ] || run 120 smoke tests/cuda/run.sh
    "$python" -m hipplan machine >"$out/machine.yaml" 2>"$out/machine.log" || {
      failed=$((failed + 1))
      echo "== machine: failed"
      cat "$out/machine.log"
    }
    ;;
  conformance)
    HIPPLAN_CONFORMANCE_RUNTIME=$HIPPLAN_RUNTIME tests 120 conformance tests/conformance
    ;;
  hardware)
    show=12 tests 240 hardware tests/hardware
    ;;
  addresses)  # beside models of transformers, where it is installed
    HIPPLAN_ADDRESS_PAIRS=${HIPPLAN_ADDRESS_PAIRS:-5} HIPPLAN_ADDRESS_ROUNDS=${HIPPLAN_ADDRESS_ROUNDS:-20} \
      tests 550 addresses -s tests/hardware/test_addresses.py
    ;;
  holders)  # at the size that a model has
    HIPPLAN_HELD=${HIPPLAN_HELD:-64GiB} HIPPLAN_HELD_CLIENTS=${HIPPLAN_HELD_CLIENTS:-100} \
      tests 400 holders -s tests/hardware/test_holders.py
    ;;
  endurance)
    HIPPLAN_CYCLES=${HIPPLAN_CYCLES:-10000} HIPPLAN_FAILED=${HIPPLAN_FAILED:-1000} \
      tests "${HIPPLAN_ENDURANCE_SECONDS:-600}" endurance -s tests/hardware/test_cycles.py
    ;;
  benchmarks)
    for name in apply alternatives growth llama loading ranks gather sleep kept; do
      show=14 run 150 "bench-$name" "$python" "benchmarks/$name.py" --json "$out/$name.json"
    done
    show=30 run 60 bench-copies "$python" -m hipplan bench --compare
    ;;
  experiments)  # of experiments/, on one GPU; STREAM where there is PyTorch, plots where there is matplotlib
    show=60 run 200 experiments "$python" tests/hardware/experiments.py "$out" "${HIPPLAN_EXPERIMENT_SECONDS:-140}"
    ;;
  *)
    echo "no part '$part'" >&2
    failed=$((failed + 1))
    ;;
  esac
done
exit "$failed"
