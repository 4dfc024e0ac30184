"""What a repetition of an experiment costs besides its measurement, against the same by a script of the user's.

    python benchmarks/repetition.py [--runtime sim] [--rounds 20] [--json FILE]

Each round starts both in processes of their own, in turns: the repetition as `hipplan experiment run` does, and a
script that applies the same plan and calls the same function. start: until it begins to make the memory, with imports
and the plan read; whole: the process.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import arguments, keep, opened, table

PLAN = "hipplan: 1\nregions: {a: {size: 2MiB}}\n"
FUNCTION = "def work(layout): return {'size': layout['a'].size}\n"
EXPERIMENT = "hipplan_experiment: 1\nplan: plan.yaml\nrepeat: 1\nseed: 1\ninside: measured:work\n"
SCRIPT = """import sys, time
import hipplan
from measured import work
apply, plan = hipplan.apply, hipplan.load("plan.yaml")  # imports, too
start = time.monotonic() - float(sys.argv[1])
with apply(plan, runtime=sys.argv[2]) as layout:
    work(layout)
print(start)
"""
Times = dict[str, float]


def repetition(folder: Path, runtime: str) -> Times:
    results = folder / "e.results.jsonl"
    results.unlink(missing_ok=True)
    run = ["experiment", "run", folder / "e.experiment.yaml", "--runtime", runtime, "-q"]
    subprocess.run([sys.executable, "-m", "hipplan", *run], check=True)
    line = json.loads(results.read_text())
    return {"start": line["times"]["start"], "whole": line["seconds"]}


def script(folder: Path, runtime: str) -> Times:
    began = time.monotonic()
    command = [sys.executable, "script.py", str(began), runtime]
    said = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    return {"start": float(said), "whole": time.monotonic() - began}


def main() -> None:
    given = arguments(__doc__, 20).parse_args()
    chosen = opened(given)
    runtime = given.runtime or chosen.kind
    taken: dict[str, list[Times]] = {"repetition": [], "script": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in (
            ("plan.yaml", PLAN), ("measured.py", FUNCTION), ("e.experiment.yaml", EXPERIMENT), ("script.py", SCRIPT)
        ):  # fmt: skip
            (folder / file).write_text(text)
        for _ in range(given.rounds):
            taken["repetition"].append(repetition(folder, runtime))
            taken["script"].append(script(folder, runtime))
    medians = {who: {part: statistics.median(t[part] for t in of) for part in of[0]} for who, of in taken.items()}
    ratios = {
        part: statistics.median(a[part] / b[part] for a, b in zip(taken["repetition"], taken["script"], strict=True))
        for part in ("start", "whole")
    }
    rows = [[part, *(f"{medians[who][part]:.3f}" for who in taken), f"{ratios[part]:.2f}"] for part in ratios]
    table(["seconds", "repetition", "script", "ratio"], rows)
    keep(given.json, "repetition", chosen, {"medians": medians, "ratios": ratios})


if __name__ == "__main__":
    main()
