"""Bytes between files and devices: how fast, beside the libraries that do the same and a plain reader.

    python benchmarks/loading.py [--runtime cuda] [--gib 4] [--folder /dev/shm] [--disk FOLDER] [--json FILE]

From the page cache to one device and to two (tensor parallel): "hipplan" fills memory that is there, as a program does
that swaps weights. Beside it: safetensors.torch.load_file (on the simulator, which has only the CPU's memory,
safetensors.numpy.load_file), fastsafetensors where it is installed, a plain reader (reader.py) with the best of a few
numbers of threads, and the plain copy of pinned memory, which reads nothing. "apply" makes the memory first, pinned
staging included, and releases everything in the end. Then: from disk, with the page cache dropped by the files' own
hint; save; remap, against the device's own copy; and what pinned memory really takes, beside PyTorch's allocator.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy
from common import MIB, Times, Variant, arguments, keep, opened, side_by_side, table
from reader import Driver, best, reading

import hipplan
from hipplan.files.tensorfiles import Files
from hipplan.language.checkpoints import plan_of
from hipplan.language.loader import load
from hipplan.layout.layout import Layout
from hipplan.layout.mover import Callbacks, Mover
from hipplan.layout.options import Options
from hipplan.layout.prepare import prepare
from hipplan.layout.record import Recorder
from hipplan.layout.run import run
from hipplan.machines.runtimes import Chosen
from hipplan.program.contents import lanes_of
from hipplan.program.program import Program

SHAPES = {
    "self_attn.q_proj.weight": (4096, 4096),
    "self_attn.k_proj.weight": (512, 4096),
    "self_attn.o_proj.weight": (4096, 4096),
    "mlp.gate_proj.weight": (14336, 4096),
    "norm.weight": (4096,),
}
"""A layer, much as an 8-billion parameter model has it, in 2 bytes an element."""
FILE_MAX = 2**30
DISK_MAX = 2 * 2**30


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
                if total >= size:
                    break
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
            file.flush()
            os.fsync(file.fileno())  # what is not on the disk yet cannot be dropped
        index |= dict.fromkeys(header, path.name)
        files.append(path)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return folder / "model.safetensors.index.json", files, total


def clocked(work: Callable[[], Any], before: Callable[[], None] = lambda: None) -> Variant:
    """before: not counted."""

    def once() -> Mapping[str, float]:
        before()
        started = time.perf_counter()
        made = work()
        took = (time.perf_counter() - started) * 1e6
        del made
        return {"load": took}

    return once


def refill(layout: Layout) -> None:
    """Does the contents of a layout's plan again, into the memory that is there."""
    state = layout._holding.state
    with closing(Files()) as files:
        mover = Mover(state, files, None, Callbacks())
        for step in state.program.contents:
            mover.do(step)


def library(chosen: Chosen, files: list[Path]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Those that are installed."""
    if chosen.kind == "sim":
        from safetensors.numpy import load_file as to_numpy

        yield "safetensors.numpy.load_file", lambda: [to_numpy(path) for path in files]
        return
    import safetensors.torch
    import torch

    def once() -> list[Any]:
        made = [safetensors.torch.load_file(path, device="cuda:0") for path in files]
        torch.cuda.synchronize()
        return made

    yield "safetensors.torch.load_file", once
    from fastsafetensors import fastsafe_open

    def fast() -> None:
        for path in files:
            with fastsafe_open(filenames=[str(path)], nogds=True, device="cuda:0") as opened_file:
                for name in opened_file.keys():  # noqa: SIM118
                    opened_file.get_tensor(name)
        torch.cuda.synchronize()

    yield "fastsafetensors", fast


def to_devices(chosen: Chosen, count: int, paths: tuple[Path, list[Path], int], rounds: int) -> dict[str, Any]:
    """From the page cache to `count` devices."""
    index, files, total = paths
    driver, small = Driver(chosen), chosen.kind == "sim"
    program = _program(chosen, count, index)
    pinned = lanes_of(program)
    missing = []
    variants: dict[str, Variant] = {}
    with run(program, chosen.runtime) as layout, ExitStack() as made:
        shares = [(device, device) for device in range(count)]
        variants["hipplan"] = clocked(lambda: refill(layout))
        try:
            for name, work in library(chosen, files) if count == 1 else ():
                variants[name] = clocked(work)
        except (ImportError, OSError, RuntimeError) as error:
            missing.append(str(error))
        variants |= made.enter_context(reading(driver, files, shares, small))
        variants["pinned copy, nothing read"] = _pinned_copy(driver, layout, total // count, made)
        took = side_by_side(variants, rounds, warm=1)
    took |= side_by_side(
        {"hipplan, apply and close": clocked(lambda: run(program, chosen.runtime).close())}, rounds, warm=1
    )
    base = took["hipplan"]["all"]
    print(f"page cache to {count} device{'s' * (count > 1)}, {total / 2**30:.2f} GiB in {len(files)} files; "
          "ratio: hipplan is so many times as fast")  # fmt: skip
    _rows(took, total, base)
    pinning = _pinning(driver, pinned)
    print(f"  of the best plain reader {best(took) / base:.2f}, of the pinned copy "
          f"{took['pinned copy, nothing read']['all'] / base:.2f}; apply pins {sum(pinned.values()) / MIB:.2f} MiB, "
          f"{pinning:.1f} ms with giving it back")  # fmt: skip
    for one in missing:
        print(f"  not measured: {one}")
    print()
    return {"bytes": total, "files": len(files), "us": took, "pinned": pinned, "pinning_ms": pinning}


def _program(chosen: Chosen, count: int, index: Path) -> Program:
    plan = index.with_name(f"plan-{count}.yaml")
    plan.write_text(plan_of(str(index), count, str(index.parent)).text)
    return prepare(load(plan), chosen, None)


def _rows(took: Mapping[str, Times], total: int, base: float) -> None:
    rows = [[name, t["all"] / 1e3, total / t["all"] / 1e3, t["all"] / base] for name, t in took.items()]
    table(["", "ms", "GB/s", "ratio"], rows)


def _pinned_copy(driver: Driver, layout: Layout, each: int, made: ExitStack) -> Variant:
    """To all devices of a layout at once, from little pinned memory."""
    lanes = []
    devices = list(layout._holding.state.program.devices.items())
    size = min(64 * MIB, each)
    for number, (_, device) in enumerate(devices):
        staging = made.enter_context(driver.pinned(device, size))
        lanes.append((device, made.enter_context(driver.stream(device)), staging, layout[f"rank.{number}"].address))

    def once() -> Mapping[str, float]:
        started = time.perf_counter()
        for at in range(0, each, size):
            for device, stream, staging, to in lanes:
                driver.call("hipSetDevice", device)
                driver.copy(to + at, staging, min(size, each - at), stream)
        for _, stream, _, _ in lanes:
            driver.wait(stream)
        return {"load": (time.perf_counter() - started) * 1e6}

    return once


def _pinning(driver: Driver, sizes: Mapping[int, int]) -> float:
    """Milliseconds that making and giving back pinned memory of these sizes takes, the median of three."""
    took = []
    for _ in range(3):
        started = time.perf_counter()
        with ExitStack() as made:
            for device, size in sizes.items():
                made.enter_context(driver.pinned(device, size))
        took.append(time.perf_counter() - started)
    return statistics.median(took) * 1e3


def drop(paths: Sequence[Path]) -> bool:
    """From the page cache, by the files' own hint. False: they are still there."""
    libc = ctypes.CDLL(None, use_errno=True)
    stay = 0
    for path in paths:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            size = path.stat().st_size
            with mmap.mmap(file.fileno(), size, mmap.MAP_PRIVATE) as mapped:
                pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
                at = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
                libc.mincore(ctypes.c_void_p(at), ctypes.c_size_t(size), pages)
                stay += sum(page & 1 for page in pages) * mmap.PAGESIZE
    return stay < sum(path.stat().st_size for path in paths) // 10


def from_disk(chosen: Chosen, paths: tuple[Path, list[Path], int], rounds: int) -> dict[str, Any]:
    index, files, total = paths
    if not drop(files):
        print(f"from disk: not measured: {index.parent} keeps its files in memory\n")
        return {}
    program = _program(chosen, 1, index)
    with (
        run(program, chosen.runtime) as layout,
        reading(Driver(chosen), files, [(0, 0)], chosen.kind == "sim") as plain,
    ):
        variants = {"hipplan": clocked(lambda: refill(layout), lambda: _dropped(files))}
        for name, variant in plain.items():
            variants[name] = _cold(variant, files)
        took = side_by_side(variants, min(rounds, 3), warm=0)
    print(f"from disk, {total / 2**30:.2f} GiB, the page cache dropped before each")
    _rows(took, total, took["hipplan"]["all"])
    return {"bytes": total, "us": took}


def _dropped(files: Sequence[Path]) -> None:
    drop(files)


def _cold(variant: Variant, files: Sequence[Path]) -> Variant:
    def once() -> Mapping[str, float]:
        drop(files)
        return variant()

    return once


def saving(chosen: Chosen, paths: tuple[Path, list[Path], int], rounds: int) -> dict[str, Any]:
    """Into a new file, against one thread that writes as much of memory that it has."""
    index, _, total = paths
    target = index.with_name("saved.safetensors")
    block = bytes(16 * MIB)

    def plainly() -> None:
        with target.open("wb", buffering=0) as file:
            os.posix_fallocate(file.fileno(), 0, total)
            for at in range(0, total, len(block)):
                file.write(block[: min(len(block), total - at)])

    with run(_program(chosen, 1, index), chosen.runtime) as layout:
        variants = {
            "hipplan, save": clocked(lambda: layout.save("rank.0", target)),
            "a thread that writes": clocked(plainly),
        }
        took = side_by_side(variants, min(rounds, 3), warm=1)
    target.unlink()
    print(f"save, {total / 2**30:.2f} GiB")
    _rows(took, total, took["hipplan, save"]["all"])
    return {"bytes": total, "us": took}


def remapping(chosen: Chosen, size: int, rounds: int, folder: Path) -> dict[str, Any]:
    """New memory for a region: all of it, and the copy alone, as the record of it tells, against hipMemcpy."""
    driver, record = Driver(chosen), folder / "record.jsonl"
    size = size // (2 * MIB) * 2 * MIB or 2 * MIB
    document = {"hipplan": 1, "regions": {"r": {"size": size}}}
    program = prepare(load(document), chosen, None)
    with run(program, chosen.runtime, Options(record=Recorder(record))) as layout, ExitStack() as made:
        other = made.enter_context(driver.device_memory(0, size))
        stream = made.enter_context(driver.stream(0))

        def copied() -> Mapping[str, float]:
            layout.fill("r", 1)  # on the simulator only what was written is copied
            layout.remap("r")
            lines = [json.loads(line) for line in record.read_text().splitlines()]
            return {"copy": next(line["us"] for line in reversed(lines) if line.get("call") == "hipMemcpyPeer")}

        def by_itself() -> Mapping[str, float]:
            started = time.perf_counter()
            driver.copy(other, layout["r"].address, size, stream)
            driver.wait(stream)
            return {"copy": (time.perf_counter() - started) * 1e6}

        variants: dict[str, Variant] = {
            "remap, the copy in it": copied,
            "the device's copy": by_itself,
            "remap, all of it": clocked(lambda: layout.remap("r")),
            "remap, without bytes": clocked(lambda: layout.remap("r", keep_bytes=False)),
        }
        took = side_by_side(variants, rounds, warm=1)
    print(f"remap of {size / 2**30:.2f} GiB on a device")
    _rows(took, size, took["remap, the copy in it"]["all"])
    return {"bytes": size, "us": took}


def _available() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))


def pinned_sizes(chosen: Chosen) -> dict[str, Any]:
    """What 16 pinned buffers of 33 MiB take of the host's memory."""
    if chosen.kind == "sim":
        print("pinned memory: not measured on the simulator, whose memory takes room when it is touched\n")
        return {}
    count, size = 16, 33 * MIB
    buffers = {"b": {"kind": "pinned", "size": size, "count": count}}
    taken = {}
    before = _available()
    with hipplan.apply({"hipplan": 1, "buffers": buffers}, runtime=chosen.kind):
        taken["hipplan"] = before - _available()
    try:
        import torch

        before = _available()
        made = [torch.empty(size, dtype=torch.uint8, pin_memory=True) for _ in range(count)]
        taken["torch.empty(pin_memory=True)"] = before - _available()
        del made
    except (ImportError, RuntimeError) as error:
        print(f"not measured: PyTorch's pinned memory: {error}")
    print(f"{count} pinned buffers of {size // MIB} MiB, {count * size // MIB} MiB asked for")
    table(["", "MiB taken", "ratio"], [[name, got / MIB, got / (count * size)] for name, got in taken.items()])
    return {"asked": count * size, "taken": taken}


def main() -> None:
    parser = arguments(__doc__ or "", rounds=5)
    parser.add_argument("--gib", type=float, default=0, help="how much (default: 4, on the simulator 0.5)")
    parser.add_argument("--folder", default=None, help="where to write the files (default: the temporary folder)")
    parser.add_argument(
        "--disk", default=None, help="where to write those that are read from disk (default: there, too)"
    )
    given = parser.parse_args()
    chosen = opened(given)
    size = int((given.gib or (0.5 if chosen.kind == "sim" else 4)) * 2**30)
    print(f"{len(os.sched_getaffinity(0))} processors\n")
    results: dict[str, Any] = {}
    folder = Path(tempfile.mkdtemp(prefix="hipplan-loading-", dir=given.folder))
    disk = Path(tempfile.mkdtemp(prefix="hipplan-loading-", dir=given.disk)) if given.disk else folder
    try:
        paths = checkpoint(folder, size)
        for count in (1, 2):
            if count <= chosen.runtime.device_count():
                results[f"to {count}"] = to_devices(chosen, count, paths, given.rounds)
        results["save"] = saving(chosen, paths, given.rounds)
        on_disk = checkpoint(disk, min(size, DISK_MAX)) if given.disk else paths
        results["from disk"] = from_disk(chosen, on_disk, given.rounds)
        results["remap"] = remapping(chosen, min(size, 4 * 2**30), given.rounds, folder)
        results["pinned"] = pinned_sizes(chosen)
    finally:
        shutil.rmtree(folder)
        shutil.rmtree(disk, ignore_errors=True)
    keep(given.json, "loading", chosen, results)


if __name__ == "__main__":
    main()
