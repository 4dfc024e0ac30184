"""The same memory by other means: cuda.core's VirtualMemoryResource, torch.empty per buffer, plain hipMalloc.

    python benchmarks/alternatives.py [--runtime cuda] [--rounds 10] [--json FILE]

256 tensors of 2 MiB on device 0 that every linked device may use, made and freed. What is not installed is left
out and named. hipplan stands twice: a handle per tensor, as the others do it, and one handle for all tensors.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from common import MIB, Variant, arguments, both, keep, linked, opened, plain, side_by_side, table, timed

from hipplan.language.loader import load
from hipplan.layout.options import Options
from hipplan.layout.prepare import prepare
from hipplan.layout.run import run
from hipplan.machines.runtimes import Chosen

COUNT, SIZE = 256, 2 * MIB


def ours(chosen: Chosen, devices: int, handles: int, check: bool) -> Variant:
    plan = {
        "hipplan": 1,
        "devices": {"gpu": {"count": devices}},
        "allocations": {"a": {"device": "gpu.0", "size": COUNT * SIZE // handles, "count": handles}},
        "reservations": {
            "r": {"access": {f"gpu.{n}": "rw" for n in range(devices)}, "mappings": [{"allocation": "a.*"}]}
        },
    }
    program = prepare(load(plan), chosen, None)
    return both(lambda: run(program, chosen.runtime, Options(verify=check)), lambda layout: layout.close())


def our_buffers(chosen: Chosen, devices: int) -> Variant:
    """hipMalloc with peers, as a plan says it; against the same by hand."""
    plan: dict[str, Any] = {
        "hipplan": 1,
        "devices": {"gpu": {"count": devices}},
        "buffers": {"b": {"kind": "device", "device": "gpu.0", "size": SIZE, "count": COUNT}},
    }
    program = prepare(load(plan), chosen, None)
    return both(lambda: run(program, chosen.runtime, Options(verify=False)), lambda layout: layout.close())


def cuda_core(devices: int) -> Variant:
    from cuda.core import Device, VirtualMemoryResource, VirtualMemoryResourceOptions

    device = Device(0)
    device.set_current()
    options = VirtualMemoryResourceOptions(peers=tuple(range(1, devices)))
    resource = VirtualMemoryResource(device, config=options)

    def drop(made: list[Any]) -> None:
        for buffer in made:
            buffer.close()

    return both(lambda: [resource.allocate(SIZE) for _ in range(COUNT)], drop)


def torch_empty() -> Variant:
    """Fresh memory each time: the cache is emptied, as the others keep none."""
    import torch

    def drop(made: list[Any]) -> None:
        made.clear()
        torch.cuda.synchronize(0)
        torch.cuda.empty_cache()

    return both(lambda: [torch.empty(SIZE, dtype=torch.uint8, device="cuda:0") for _ in range(COUNT)], drop)


def main() -> None:
    given = arguments(__doc__ or "", rounds=10).parse_args()
    chosen = opened(given)
    available = linked(chosen)
    hand = plain(chosen)
    results, missing = [], []
    for devices in sorted({1, available}):
        variants: dict[str, Variant] = {
            "hipplan, a handle each": ours(chosen, devices, COUNT, check=False),
            "hipplan, verified": ours(chosen, devices, COUNT, check=True),
            "hipplan, one handle, verified": ours(chosen, devices, 1, check=True),
            "C++, the same calls": lambda devices=devices: timed(_mappings(hand), COUNT, SIZE, devices),
        }
        others: dict[str, Callable[[], Variant]] = {}
        if chosen.kind == "cuda":
            others["cuda.core VirtualMemoryResource"] = lambda devices=devices: cuda_core(devices)
        if chosen.kind in ("amd", "cuda") and devices == 1:
            others["torch.empty each"] = torch_empty
        for name, make in others.items():
            try:
                variants[name] = make()
                variants[name]()
            except Exception as error:  # another release of it, or none: the rest still counts
                variants.pop(name, None)
                missing.append(f"{name}, {devices} device(s): {type(error).__name__}: {error}")
        show(f"{COUNT} x 2 MiB, access for {devices} device(s)", variants, given.rounds, devices, results)
    for devices in sorted({1, available}):
        links = [(a, b) for a in range(devices) for b in range(devices) if a != b] if devices > 1 else []
        _peers(chosen, links, "hipDeviceEnablePeerAccess")
        buffers: dict[str, Variant] = {
            "hipplan, buffers": our_buffers(chosen, devices),
            "C++, hipMalloc": lambda: timed(_buffers(hand), COUNT, SIZE),
            "hipplan, a handle each": ours(chosen, devices, COUNT, check=False),
            "hipplan, one handle, verified": ours(chosen, devices, 1, check=True),
        }
        title = f"{COUNT} x 2 MiB by hipMalloc, peers of {devices} device(s) enabled"
        show(title, buffers, given.rounds, devices, results)
        _peers(chosen, links, "hipDeviceDisablePeerAccess")
    for line in missing:
        print(f"not measured: {line}")
    keep(given.json, "alternatives", chosen, {"tables": results, "not measured": missing})


def show(title: str, variants: dict[str, Variant], rounds: int, devices: int, results: list[Any]) -> None:
    gc.collect()
    took = side_by_side(variants, rounds)
    base = next(iter(took.values()))["all"]
    print(f"{title}, us; ratio to the first line: above 1 is slower")
    table(
        ["", "up", "down", "both", "ratio"],
        [[name, t["apply"], t["teardown"], t["all"], t["all"] / base] for name, t in took.items()],
    )
    results.append({"title": title, "devices": devices, "rounds": rounds, "us": took})


def _peers(chosen: Chosen, links: list[tuple[int, int]], call: str) -> None:
    import ctypes

    hip = ctypes.CDLL(chosen.runtime.path)
    for device, peer in links:
        hip.hipSetDevice(device)
        code = hip.hipDeviceEnablePeerAccess(peer, 0) if "Enable" in call else hip.hipDeviceDisablePeerAccess(peer)
        if code:
            raise RuntimeError(f"{call}: {code}")
    hip.hipSetDevice(0)


def _mappings(hand: Any) -> Any:
    import ctypes

    return lambda count, size, devices, up, down: hand.plain_mappings(count, ctypes.c_size_t(size), devices, up, down)


def _buffers(hand: Any) -> Any:
    import ctypes

    return lambda count, size, up, down: hand.plain_buffers(count, ctypes.c_size_t(size), up, down)


if __name__ == "__main__":
    main()
