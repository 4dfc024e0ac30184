"""Runs the cells of experiments/ that fit one GPU, in rounds, until its time is over; reports on what it has.

python tests/hardware/experiments.py FOLDER [SECONDS]    FOLDER gets experiments.md and experiments.tar.gz

A round adds one repetition of each cell: whenever the time is over, all cells of an experiment have about equally many.
The exit code is 1 if a repetition failed, or an experiment has none. The results name the host.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
HIPPLAN = [sys.executable, "-m", "hipplan", "experiment"]
ROUNDS = 6
"""Repetitions of each cell: fewer give no 95 % interval."""
CHOSEN = {
    "multi-gpu-comm/stream": ["size=1MiB,32MiB,1GiB,8GiB", "holder=gpu.0"],
    "comm-scope/pinned": ["size=4KiB,1MiB,256MiB", "device=gpu.0"],
    "comm-scope/gpu-to-gpu": ["size=4KiB,1MiB,1GiB", "to=gpu.0"],
    "comm-scope/prefetch": ["size=1MiB,256MiB", "gpus=1"],
    "mi300a/allocators": ["size=64MiB,1GiB", "HSA_XNACK=0"],
    "multi-gpu-comm/stream-buffers": ["size=1MiB,1GiB", "holder=gpu.0"],
}
"""Experiment -> its cells, as options of --only; first those that matter most."""
NEEDS_TORCH = ("multi-gpu-comm/stream",)


class Experiment:
    """One of the experiments, and what it has measured so far."""

    def __init__(self, name: str, only: Sequence[str], folder: Path) -> None:
        self.name = name
        self._file = ROOT / "experiments" / f"{name}.experiment.yaml"
        self._only = [f"--only={cells}" for cells in only]
        self.results = folder / f"{Path(name).name}.results.jsonl"
        self._log = folder / "log.txt"
        self.took = 0.0
        """Seconds of its last round."""

    def add_repetition(self, number: int, limit_s: float) -> None:
        """Brings each cell to so many repetitions. After the limit it is killed: its lines stay."""
        action = "resume" if self.results.exists() else "run"
        command = [*HIPPLAN, action, self._file, "-o", self.results, *self._only, f"--repeat={number}"]
        began = time.monotonic()
        with self._log.open("a") as log, contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, stdout=log, stderr=log, check=False, timeout=limit_s)
        self.took = time.monotonic() - began

    def is_measured(self) -> bool:
        """Whether it has results, all of them good."""
        if not self.results.exists():
            return False
        outcomes = [json.loads(line)["result"] for line in self.results.read_text().splitlines()]
        return bool(outcomes) and set(outcomes) == {"ok"}

    def report(self, *options: str) -> str:
        """What `hipplan experiment report` says of the results."""
        command = [*HIPPLAN, "report", self.results, *options]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout


def main(out: str, limit_s: str = "140") -> int:
    """limit_s: for the repetitions; the reports come after them."""
    end = time.monotonic() + float(limit_s)
    folder = Path(out) / "experiments"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    has_torch = find_spec("torch") is not None
    chosen = {name: only for name, only in CHOSEN.items() if has_torch or name not in NEEDS_TORCH}
    experiments = [Experiment(name, only, folder) for name, only in chosen.items()]
    for number in range(1, ROUNDS + 1):
        for experiment in experiments:
            if (left := end - time.monotonic()) > experiment.took:
                experiment.add_repetition(number, left)
    summary = [f"# Experiments on one GPU{'' if has_torch else ', without PyTorch'}"]
    for experiment in experiments:
        text = experiment.report("--format=markdown", f"--plots={folder / 'plots'}")
        summary.append(f"## {experiment.name}\n\n{text}")
        experiment.results.with_suffix(".csv").write_text(experiment.report("--format=csv"))
    Path(out, "experiments.md").write_text("\n\n".join(summary))
    with tarfile.open(Path(out) / "experiments.tar.gz", "w:gz") as packed:
        packed.add(folder, "experiments")
    print("\n\n".join(summary))
    measured = [experiment.name for experiment in experiments if experiment.is_measured()]
    print(f"measured without a failure: {', '.join(measured)}")
    shutil.rmtree(folder)
    return int(len(measured) < len(experiments))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
