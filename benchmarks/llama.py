"""Llama-3-70B's weights on several GPUs: 723 tensors on each, in one piece of memory.

    python benchmarks/llama.py [--runtime cuda] [--ranks 4] [--rounds 5] [--json FILE]

Against hand-written C++ with a handle for each tensor, C++ with one bare handle a GPU, torch.empty and cuda.core's
VirtualMemoryResource for each tensor. The plan is plans/mi300x-8/llama-3-70b.yaml without its cache. What is not
installed is left out and named.
"""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import yaml
from common import ROOT, Variant, arguments, both, keep, opened, plain, side_by_side, table, timed

from hipplan.errors import MachineError
from hipplan.language.loader import load
from hipplan.layout.options import Options
from hipplan.layout.prepare import prepare
from hipplan.layout.run import run
from hipplan.machines.runtimes import Chosen
from hipplan.program.program import Program
from hipplan.units import round_up

BYTES = 141_107_412_992
"""Of all tensors, each counted once."""


def weights(ranks: int) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / "plans" / "mi300x-8" / "llama-3-70b.yaml").read_text())
    del document["regions"]["kv"]
    document["vars"]["tp"] = ranks
    return document


def by_hand(hand: ctypes.CDLL, sizes: list[int], devices: list[int]) -> Variant:
    count = len(sizes)
    native = (ctypes.c_size_t * count)(*sizes), (ctypes.c_int * count)(*devices)
    return lambda: timed(hand.plain_tensors, count, *native)


def torch_empty(sizes: list[int], devices: list[int]) -> Variant:
    import torch

    def drop(made: list[Any]) -> None:
        made.clear()
        torch.cuda.empty_cache()

    pairs = list(zip(sizes, devices, strict=True))
    return both(lambda: [torch.empty(n, dtype=torch.uint8, device=f"cuda:{d}") for n, d in pairs], drop)


def cuda_core(sizes: list[int], devices: list[int]) -> Variant:
    from cuda.core import Device, VirtualMemoryResource, VirtualMemoryResourceOptions

    resources = {}
    for number in sorted(set(devices)):
        device = Device(number)
        device.set_current()
        resources[number] = VirtualMemoryResource(device, config=VirtualMemoryResourceOptions())

    def make() -> list[Any]:
        made: list[Any] = []
        try:
            for size, number in zip(sizes, devices, strict=True):
                Device(number).set_current()
                made.append(resources[number].allocate(size))
        except Exception:
            drop(made)  # else the next variant finds the devices full
            raise
        return made

    def drop(made: list[Any]) -> None:
        for buffer in made:
            buffer.close()
        Device(0).set_current()

    return both(make, drop)


def places(program: Program) -> tuple[list[int], list[int]]:
    """Bytes and device of each tensor."""
    tensors = [resource for resource in program.resources if resource.kind == "tensor"]
    return [tensor.size for tensor in tensors], [program.devices[tensor.device] for tensor in tensors]


def variants(chosen: Chosen, program: Program, missing: list[str]) -> dict[str, Variant]:
    chunks = [resource for resource in program.resources if resource.kind == "allocation"]
    ordinals = program.devices
    sizes, devices = places(program)
    step = 2 * 2**20
    hand = plain(chosen)
    by_name: dict[str, Variant] = {
        "hipplan": both(lambda: run(program, chosen.runtime, Options(verify=False)), lambda layout: layout.close()),
        "hipplan, verified": both(lambda: run(program, chosen.runtime), lambda layout: layout.close()),
        "C++, one bare handle a GPU": by_hand(hand, [c.size for c in chunks], [ordinals[c.device] for c in chunks]),
        "C++, a handle each": by_hand(hand, [round_up(size, step) for size in sizes], devices),
    }
    if chosen.kind not in ("amd", "cuda"):
        return by_name
    name = "torch.empty each"
    try:
        by_name[name] = torch_empty(sizes, devices)
        by_name[name]()
    except Exception as error:  # another release of it, or none: the rest still counts
        by_name.pop(name, None)
        missing.append(f"{name}: {type(error).__name__}: {error}")
    return by_name


def once_by_cuda_core(chosen: Chosen, program: Program, missing: list[str]) -> dict[str, dict[str, float]]:
    """Last, and once: cuda.core as of 2026-11 keeps a handle to each buffer that it has closed, so what it took
    is gone until the process ends."""
    if chosen.kind != "cuda":
        return {}
    before = chosen.runtime.memory_info(0)[0]
    try:
        parts = dict(cuda_core(*places(program))())
    except Exception as error:
        missing.append(f"cuda.core each: {type(error).__name__}: {error}")
        return {}
    if left := before - chosen.runtime.memory_info(0)[0]:
        print(f"cuda.core has left {left / 2**30:.1f} GiB of device 0 behind after closing every buffer")
    return {"cuda.core each, once": parts | {"all": sum(parts.values())}}


def main() -> None:
    parser = arguments(__doc__ or "", rounds=5)
    parser.add_argument("--ranks", type=int, default=0, help="GPUs (default: 4, or as many as there are)")
    given = parser.parse_args()
    chosen = opened(given)
    available = chosen.runtime.device_count()
    ranks = given.ranks or max(n for n in (1, 2, 4) if n <= available)
    try:
        program = prepare(load(weights(ranks)), chosen, None)
    except MachineError as error:  # these weights are not for every machine
        print(f"not measured: the devices are too small or too few\n{error}")
        keep(given.json, "llama", chosen, {"not measured": [str(error)]})
        return
    missing: list[str] = []
    gc.collect()
    took = side_by_side(variants(chosen, program, missing), given.rounds, warm=1)
    took |= once_by_cuda_core(chosen, program, missing)
    base = took["hipplan"]["all"]
    tensors = [resource for resource in program.resources if resource.kind == "tensor"]
    print(f"{len(tensors)} tensors on {ranks} GPUs, us; ratio to the first line: above 1 is slower")
    table(
        ["", "up", "down", "both", "ratio"],
        [[name, t["apply"], t["teardown"], t["all"], t["all"] / base] for name, t in took.items()],
    )
    held = sum(program.bytes_by_device().values())
    each = sum(round_up(tensor.size, 2 * 2**20) for tensor in tensors)
    print(f"physical memory over the tensors' sum: {held / sum(t.size for t in tensors):.6f}; "
          f"padded to 2 MiB each: {each / sum(t.size for t in tensors):.6f}")  # fmt: skip
    for line in missing:
        print(f"not measured: {line}")
    results = {"ranks": ranks, "us": took, "physical": held, "tensors": sum(t.size for t in tensors), "padded": each}
    keep(given.json, "llama", chosen, {**results, "not measured": missing})


if __name__ == "__main__":
    main()
