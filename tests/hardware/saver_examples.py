"""Runs torch_memory_saver's own examples on hipplan.torch_memory_saver: unmodified, each in its own process, with
nothing preloaded.

    git clone https://github.com/fzyzcjy/torch_memory_saver
    python -m tests.hardware.saver_examples torch_memory_saver/test/examples
    python -m tests.hardware.saver_examples torch_memory_saver/test/examples --package FOLDER   # on the package itself

FOLDER is where `pip install --target FOLDER torch_memory_saver==0.0.10` has put it. The cases are those of its
test/test_examples.py for AMD and NVIDIA. The exit code is 0 if all passed that hipplan says it can do.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from hipplan.torch_memory_saver import folder

ROOT = Path(__file__).parents[2]
ALL_MEMORY = "it wants TMS_INIT_ENABLE: all memory of the process, which takes a preloaded library"
INSIDE = "it reads the package's private _impl"
DISK = "a pool sleeps into no file (HP440)"


class Case(NamedTuple):
    example: str
    function: str
    modes: tuple[str, ...] = ("preload", "torch")
    variables: dict[str, str] = {}
    devices: int = 1
    not_here: str = ""
    """Why hipplan cannot pass it; empty: it can."""


INIT = {"TMS_INIT_ENABLE": "1", "TMS_INIT_ENABLE_CPU_BACKUP": "1"}
MMAP = {"TMS_INIT_CPU_BACKUP_BACKEND": "mmap"}
CASES = (
    Case("simple", "run"),
    Case("cuda_graph", "run"),
    Case("rl_example", "run"),
    Case("cpu_backup", "run", not_here=f"{INSIDE}, after all that is not about it"),
    Case("cpu_backup", "run_retain_from_env", variables={"TMS_RETAIN_CPU_BACKUP": "1"}),
    Case("cpu_backup", "run_backend_from_env", variables=MMAP, not_here=INSIDE),
    Case("cpu_backup", "run_rss", modes=("torch",)),
    Case("cpu_backup", "run_preload_backend_from_env", ("preload",), INIT | MMAP, not_here=ALL_MEMORY),
    Case("cpu_backup", "run_multi_device_mmap_restore", devices=2),
    Case("disk_backup", "run", not_here=DISK),
    Case("multi_device", "run", devices=2),
    Case("multi_device_torch_mode", "run", modes=("torch",), devices=2),
    Case("training_engine", "run", modes=("preload",), variables=INIT, not_here=ALL_MEMORY),
    Case("nested_region", "run", modes=("preload",), variables=INIT, not_here=ALL_MEMORY),
    Case("cuda_vmm_granularity", "run", ("preload",), {"TMS_INIT_ENABLE": "1"}, not_here=ALL_MEMORY),
)
CALL = "import importlib, sys; getattr(importlib.import_module(sys.argv[1]), sys.argv[2])(hook_mode=sys.argv[3])"
LIBRARY = "from torch_memory_saver.utils import get_binary_path_from_package as of; print(of('{}'))"


def surroundings(case: Case, mode: str, examples: Path, package: Path | None) -> dict[str, str]:
    """The variables of a case's process. package: of torch_memory_saver itself; None: hipplan's."""
    path = [str(package or folder()), str(examples), str(ROOT), os.environ.get("PYTHONPATH", "")]
    out = {**os.environ, **case.variables, "PYTHONPATH": os.pathsep.join(filter(None, path))}
    out.pop("LD_PRELOAD", None)
    if package is not None and mode == "preload":
        ask = [sys.executable, "-c", LIBRARY.format("torch_memory_saver_hook_mode_preload")]
        out["LD_PRELOAD"] = subprocess.run(ask, env=out, check=True, capture_output=True, text=True).stdout.strip()
    return out


def outcome(case: Case, mode: str, examples: Path, package: Path | None) -> str:
    """Empty if it passed, else the last line that it wrote."""
    command = [sys.executable, "-c", CALL, case.example, case.function, mode]
    try:
        ended = subprocess.run(
            command, env=surroundings(case, mode, examples, package), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=120, errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "it did not end within 120 s"
    if ended.returncode == 0:
        return ""
    lines = [line for line in ended.stdout.splitlines() if line.strip()] or ["no output"]
    return f"exit code {ended.returncode}: {lines[-1][:200]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("examples", type=Path)
    parser.add_argument("--package", type=Path, help="of torch_memory_saver itself, to run the same on it")
    parser.add_argument("--devices", type=int, help="default: as many as PyTorch sees")
    given = parser.parse_args()
    import torch

    devices = torch.cuda.device_count() if given.devices is None else given.devices
    passed = failed = 0
    runs = [(case, mode) for case in CASES for mode in case.modes]
    for case, mode in runs:
        what = f"{case.example}.{case.function} ({mode})"
        if case.devices > devices:
            print(f"-       {what}: it needs {case.devices} GPUs", flush=True)
            continue
        why = outcome(case, mode, given.examples.resolve(), given.package and given.package.resolve())
        passed += not why
        if not why:
            print(f"passed  {what}", flush=True)
        elif case.not_here and given.package is None:
            print(f"-       {what}: {case.not_here}\n        {why}", flush=True)
        else:
            failed += 1
            print(f"FAILED  {what}: {why}", flush=True)
    print(f"{passed} of {len(runs)} passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
