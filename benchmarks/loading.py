"""Loading safetensors files from the page cache into a region, against the safetensors library.

    python benchmarks/loading.py [--runtime cuda] [--gib 4] [--rounds 5] [--folder /dev/shm] [--json FILE]

On a GPU against safetensors.torch.load_file(device="cuda"); on the simulator, which has only the CPU's memory,
against safetensors.numpy.load_file. "load" fills memory that is there, as a program does that swaps weights; "apply"
makes it first, pinned staging memory included, and gives everything back in the end.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy
from common import MIB, arguments, keep, opened, side_by_side, table

from hipplan.language.checkpoints import plan_of
from hipplan.language.loader import load
from hipplan.layout.prepare import prepare
from hipplan.layout.run import run
from hipplan.machines.runtimes import Chosen

SHAPES = {"q": (4096, 4096), "k": (512, 4096), "o": (4096, 4096), "gate": (14336, 4096), "norm": (4096,)}
"""A layer, much as an 8-billion parameter model has it, in 2 bytes an element."""
FILE_MAX = 2**30


def checkpoint(folder: Path, size: int) -> tuple[Path, list[Path], int]:
    """An index, its files, and the bytes of all tensors."""
    files: list[Path] = []
    index: dict[str, str] = {}
    noise = numpy.random.default_rng(3).integers(0, 2**15, 16 * MIB, "u2")
    total = layer = 0
    while total < size:
        path = folder / f"model-{len(files):05}.safetensors"
        header: dict[str, Any] = {}
        end = 0
        while end < FILE_MAX and total < size:
            for name, shape in SHAPES.items():
                many = int(numpy.prod(shape)) * 2
                header[f"layers.{layer}.{name}"] = {"dtype": "F16", "shape": shape, "data_offsets": [end, end + many]}
                end += many
                total += many
            layer += 1
        text = json.dumps(header).encode()
        with path.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for start in range(0, end, noise.nbytes):
                file.write(memoryview(noise).cast("B")[: min(noise.nbytes, end - start)])
        index |= dict.fromkeys(header, path.name)
        files.append(path)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return folder / "model.safetensors.index.json", files, total


def seconds(work: Callable[[], Any]) -> Mapping[str, float]:
    started = time.perf_counter()
    made = work()
    took = (time.perf_counter() - started) * 1e6
    del made
    return {"load": took}


def library(chosen: Chosen, files: list[Path]) -> Callable[[], Mapping[str, float]]:
    if chosen.kind == "sim":
        from safetensors.numpy import load_file

        return lambda: seconds(lambda: [load_file(path) for path in files])
    import safetensors.torch
    import torch

    def once() -> list[Any]:
        made = [safetensors.torch.load_file(path, device="cuda:0") for path in files]
        torch.cuda.synchronize()
        return made

    return lambda: seconds(once)


def main() -> None:
    parser = arguments(__doc__ or "", rounds=5)
    parser.add_argument("--gib", type=float, default=0, help="how much (default: 4, on the simulator 0.5)")
    parser.add_argument("--folder", default=None, help="where to write the files (default: the temporary folder)")
    given = parser.parse_args()
    chosen = opened(given)
    size = int((given.gib or (0.5 if chosen.kind == "sim" else 4)) * 2**30)
    folder = Path(tempfile.mkdtemp(prefix="hipplan-loading-", dir=given.folder))
    try:
        results = measure(chosen, folder, size, given.rounds)
    finally:
        shutil.rmtree(folder)
    keep(given.json, "loading", chosen, results)


def measure(chosen: Chosen, folder: Path, size: int, rounds: int) -> dict[str, Any]:
    index, files, total = checkpoint(folder, size)
    for path in files:
        path.read_bytes()  # into the page cache, if it is not there still
    plan = folder / "plan.yaml"
    plan.write_text(plan_of(str(index), 1, str(folder)).text)
    program = prepare(load(plan), chosen, None)
    theirs = "safetensors.numpy.load_file" if chosen.kind == "sim" else "safetensors.torch.load_file"
    missing = ""
    with run(program, chosen.runtime) as layout:
        variants = {"hipplan, load": lambda: seconds(lambda: layout.load("rank.0", index))}
        try:
            variants[theirs] = library(chosen, files)
        except ImportError as error:
            missing = f"{theirs}: {error}"
        took = side_by_side(variants, rounds, warm=1)
    took |= side_by_side(
        {"hipplan, apply": lambda: seconds(lambda: run(program, chosen.runtime).close())}, rounds, warm=1
    )
    base = took.get(theirs, took["hipplan, load"])["all"]
    print(f"{total / 2**30:.2f} GiB in {len(files)} files; ratio: how many times faster than the library")
    table(
        ["", "ms", "GB/s", "ratio"],
        [[name, t["all"] / 1e3, total / t["all"] / 1e3, base / t["all"]] for name, t in took.items()],
    )
    if missing:
        print(f"not measured: {missing}")
    return {"bytes": total, "files": len(files), "us": took}


if __name__ == "__main__":
    main()
