"""Attaching to memory that a holder keeps, against loading the same bytes again.

    python benchmarks/kept.py [--runtime cuda] [--gib 64] [--chunk-mib 1024] [--json FILE]

A holder is filled from one file of a chunk's size, chunk after chunk; then, round by round, a new process attaches and
another one applies the same plan. Both import hipplan and open the device's context first, which is shown and not
counted: "attach" is hipplan.attach() then, "again" the same once more in that process, elsewhere, "load" is
hipplan.apply() with the file in the page cache. "imports" is what importing the modules of the call takes.
Last, the commands `hipplan sleep` and `hipplan wake`, from their start to their end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import MIB, ROOT, Ratio, Times, arguments, keep, opened, positive, side_by_side, table

from hipplan.machines.runtimes import Chosen

CLIENT = """
import json, sys, time
how, runtime, plan = sys.argv[1:]
def timed(call):
    began = time.perf_counter()
    done = call()
    return done, (time.perf_counter() - began) * 1e6
import hipplan
def modules():
    if how == "load":
        import hipplan.api, hipplan.layout.prepare
    else:
        import hipplan.holders.attaching
    from hipplan.machines.runtimes import choose
    return choose
choose, imports = timed(modules)
_, context = timed(lambda: choose(runtime).runtime.memory_info(0))
if how == "load":
    layout, took = timed(lambda: hipplan.apply(plan, runtime=runtime, answer=False))
    times = {"imports": imports, "context": context, "ready": took}
else:
    layout, took = timed(lambda: hipplan.attach("kept", runtime=runtime, answer=False))
    other, again = timed(lambda: hipplan.attach("kept", runtime=runtime, answer=False, addresses="any"))
    times = {"imports": imports, "context": context, "ready": took, "again": again}
    other.close()
assert layout.drift() == []
layout.close()
print(json.dumps(times))
"""


def plan_of(folder: Path, chunks: int, chunk: int) -> Path:
    (folder / "chunk.bin").write_bytes(os.urandom(MIB) * (chunk // MIB))
    tensors = {f"t{number}": {"dtype": "u8", "shape": [chunk]} for number in range(chunks)}
    plan = {
        "hipplan": 1,
        "name": "kept",
        "devices": {"gpu": {"count": 1}},
        "regions": {"model": {"device": "gpu.0", "size": chunks * chunk, "chunk": chunk, "tensors": tensors}},
        "contents": {f"model.t{number}": {"file": "chunk.bin"} for number in range(chunks)},
    }
    (folder / "plan.yaml").write_text(json.dumps(plan))
    return folder / "plan.yaml"


def command(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=ROOT, timeout=600)
    if done.returncode != 0:
        sys.exit(f"{' '.join(arguments)[:60]}: {done.stderr.strip()}")
    return done.stdout


def verb(name: str) -> dict[str, float]:
    began = time.perf_counter()
    command("-m", "hipplan", name, "kept", "--quiet")
    return {"whole": (time.perf_counter() - began) * 1e6}


def measure(chosen: Chosen, folder: Path, chunks: int, chunk: int, rounds: int) -> dict[str, Any]:
    plan = plan_of(folder, chunks, chunk)
    own = {"again": 0.0}

    def client(how: str) -> dict[str, float]:
        return json.loads(command("-c", CLIENT, how, chosen.kind, str(plan)))

    def attach() -> dict[str, float]:
        return client("attach")

    def load() -> dict[str, float]:
        return client("load") | own

    command("-m", "hipplan", "up", str(plan), "--name", "kept", "--runtime", chosen.kind, "--quiet")
    try:
        took = side_by_side({"attach": attach, "load": load}, rounds, warm=1)
        asleep = side_by_side({"sleep": lambda: verb("sleep"), "wake": lambda: verb("wake")}, rounds, warm=0)
    finally:
        command("-m", "hipplan", "down", "kept", "--force", "--quiet")
    total = chunks * chunk
    print(f"{total / 2**30:.2f} GiB in {chunks} chunks; milliseconds")
    table(["", "imports", "context", "ready", "again"], [_row(name, times) for name, times in took.items()])
    print(f"ratio of attaching to loading again: {Ratio.of(took['attach'], took['load'], 'ready')}")
    table(
        ["", "ms", "GB/s"],
        [[name, times["whole"] / 1e3, total / 1e3 / times["whole"]] for name, times in asleep.items()],
    )
    return {"bytes": total, "chunks": chunks, "us": took, "asleep_us": asleep}


def _row(name: str, times: Times) -> list[Any]:
    return [name, *(times[part] / 1e3 for part in ("imports", "context", "ready", "again"))]


def main() -> None:
    parser = arguments(__doc__ or "", rounds=5)
    parser.add_argument("--gib", type=float, default=0, help="how much (default: 64, on the simulator 0.25)")
    parser.add_argument("--chunk-mib", type=positive, default=0, help="of a chunk (default: 1024, on the simulator 4)")
    given = parser.parse_args()
    chosen = opened(given)
    simulated = chosen.kind == "sim"
    chunk = (given.chunk_mib or (4 if simulated else 1024)) * MIB
    chunks = max(1, int((given.gib or (0.25 if simulated else 64)) * 2**30) // chunk)
    with tempfile.TemporaryDirectory(prefix="hipplan-kept-") as folder:
        os.environ["HIPPLAN_SOCKETS"] = str(Path(folder, "sockets"))
        results = measure(chosen, Path(folder), chunks, chunk, given.rounds)
    keep(given.json, "kept", chosen, results)


if __name__ == "__main__":
    main()
