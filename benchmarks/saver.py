"""hipplan.torch_memory_saver beside torch_memory_saver itself: pause and resume, with a backup and without.

    pip install --target FOLDER torch_memory_saver==0.0.10
    python benchmarks/saver.py FOLDER [--gib 8] [--rounds 3] [--json FILE]

Each runs in a process of its own: torch_memory_saver with its library preloaded, with its default backup (pinned) and
with "mmap"; hipplan with nothing preloaded. Retained: retain_cpu_backup is on. The ratios are its time by hipplan's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

GIB = 2**30
PARTS = 4
"""Tensors a GiB."""


def measured(backend: str | None, gib: int, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each call, in this process."""
    import torch
    from torch_memory_saver import torch_memory_saver as saver

    def timed(call: Callable[[], Any]) -> float:
        torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        torch.cuda.synchronize()
        return (time.perf_counter() - began) * 1e3

    def tensors() -> list[Any]:
        return [torch.full((GIB // 4 // PARTS,), float(n), device="cuda:0") for n in range(gib * PARTS)]

    took: dict[str, list[float]] = {}

    def cycles(what: str, tag: str, count: int, first: str = "") -> None:
        for number in range(count):
            pause = first if first and number == 0 else f"pause, {what}"
            took.setdefault(pause, []).append(timed(lambda: saver.pause(tag)))
            took.setdefault(f"resume, {what}", []).append(timed(lambda: saver.resume(tag)))

    with saver.region("kept", enable_cpu_backup=True, cpu_backup_backend=backend):
        kept = tensors()
    cycles("backup", "kept", rounds + 1, "first pause, backup")
    saver.retain_cpu_backup = True
    cycles("retained", "kept", rounds + 1, "pause before, retained")
    assert [float(tensor[-1]) for tensor in kept] == [float(n) for n in range(gib * PARTS)]
    del took["pause before, retained"]
    del kept
    torch.cuda.empty_cache()
    with saver.region("dropped"):
        dropped = tensors()
    cycles("no backup", "dropped", rounds)
    del dropped
    return took


def run(who: str, package: Path, backend: str | None, given: argparse.Namespace) -> dict[str, float]:
    """Medians of a process."""
    out = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(package), os.environ.get("PYTHONPATH"))))}
    if who != "hipplan":
        ask = "from torch_memory_saver.utils import get_binary_path_from_package as of; "
        ask += "print(of('torch_memory_saver_hook_mode_preload'))"
        known = subprocess.run([sys.executable, "-c", ask], env=out, check=True, capture_output=True, text=True)
        out["LD_PRELOAD"] = known.stdout.strip()
    command = [sys.executable, __file__, "-", "--gib", str(given.gib), "--rounds", str(given.rounds)]
    command += ["--backend", backend] if backend else []
    ended = subprocess.run(command, env=out, check=True, stdout=subprocess.PIPE, text=True)
    took = json.loads(ended.stdout.splitlines()[-1])
    return {what: statistics.median(values) for what, values in took.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", help="the folder that torch_memory_saver is installed in")
    parser.add_argument("--gib", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--backend", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.package == "-":  # a process that measures
        print(json.dumps(measured(given.backend, given.gib, given.rounds)))
        return
    from hipplan.torch_memory_saver import folder

    theirs = Path(given.package).resolve()
    all_of_them = {
        "hipplan": run("hipplan", folder(), None, given),
        "pinned": run("pinned", theirs, "pinned", given),
        "mmap": run("mmap", theirs, "mmap", given),
    }
    print(f"{given.gib} GiB in {given.gib * PARTS} tensors; medians of {given.rounds} rounds, ms")
    print(f"{'':22}{'hipplan':>10}{'pinned':>10}{'mmap':>10}{'pinned / hipplan':>20}{'mmap / hipplan':>18}")
    for what, ours in all_of_them["hipplan"].items():
        pinned, mmap = all_of_them["pinned"][what], all_of_them["mmap"][what]
        print(f"{what:22}{ours:10.1f}{pinned:10.1f}{mmap:10.1f}{pinned / ours:20.2f}{mmap / ours:18.2f}")
    if given.json:
        given.json.write_text(json.dumps(all_of_them, indent=1))


if __name__ == "__main__":
    main()
