"""What a tensor costs before any driver call: loading, placing and previewing plans of many tensors.

    python benchmarks/tensors.py [--rounds 3] [--json FILE]

"preview" is the whole command in a process of its own, its output into a file. The last column is the cost of one
tensor against that of one in the smallest plan: 1 is linear.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path

from common import side_by_side, table

import hipplan
from hipplan.language.budget import LIMITS

COUNTS = (1_000, 5_000, LIMITS["repetitions"])


def plan(folder: Path, count: int) -> Path:
    path = folder / f"{count}.yaml"
    each = f"{{each: {{n: {count}}}, dtype: bf16, shape: [64, 64]}}"
    path.write_text(f"hipplan: 1\nregions: {{r: {{tensors: {{layer.$(n).w: {each}}}}}}}\n")
    return path


def once(path: Path) -> Mapping[str, float]:
    started = time.perf_counter()
    loaded = hipplan.load(path)
    read = time.perf_counter()
    hipplan.compile(loaded, machine=hipplan.machine("mi300x-8"))
    placed = time.perf_counter()
    with tempfile.TemporaryFile() as out:
        command = [sys.executable, "-m", "hipplan", "preview", str(path), "--machine", "mi300x-8"]
        subprocess.run(command, stdout=out, check=True)
    shown = time.perf_counter()
    return {"load": (read - started) * 1e6, "place": (placed - read) * 1e6, "preview": (shown - placed) * 1e6}


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS, help="how many tensors")
    parser.add_argument("--json", type=Path, default=None, help="write the results here too")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hipplan-tensors-") as folder:
        plans = {str(count): plan(Path(folder), count) for count in given.counts}
        took = side_by_side({name: lambda path=path: once(path) for name, path in plans.items()}, given.rounds, warm=1)
    first = sum(took[str(given.counts[0])][part] for part in ("load", "place")) / given.counts[0]
    print("seconds; a tensor's cost against the smallest plan's")
    table(
        ["tensors", "load", "place", "preview", "ratio"],
        [
            [name, t["load"] / 1e6, t["place"] / 1e6, t["preview"] / 1e6, (t["load"] + t["place"]) / int(name) / first]
            for name, t in took.items()
        ],
    )
    if given.json is not None:
        given.json.write_text(json.dumps({"benchmark": "tensors", "results": took}, indent=1) + "\n")


if __name__ == "__main__":
    main()
