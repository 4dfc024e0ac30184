"""Memory that moves to the host and back at its addresses, against plain copies; what kernels reach there.

    python benchmarks/host_tier.py [--runtime cuda] [--gib 8] [--chunk-mib 512] [--rounds 3] [--json FILE]

"remap" is hipplan's whole call: memory is made, mapped, filled and the old memory freed. "kept": the layout has kept
the host's memory of the time before (`retain=True`), so that none is made or freed. "sleep, mapped" is the same as one
sleep. Beside it, one plain copy of the same bytes between the GPU and pinned memory. Kernels are PyTorch's: the sum of
all bytes reads, a fill writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

from common import MIB, arguments, keep, opened, positive

import hipplan
from hipplan.machines.runtimes import Chosen


def seconds(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def measure(chosen: Chosen, size: int, chunk: int, rounds: int) -> dict[str, Any]:
    plan = {
        "hipplan": 1,
        "devices": {"gpu": {"count": 1}},
        "regions": {"memory": {"device": "gpu.0", "size": size, "chunk": min(size, chunk)}},
        "buffers": {"pinned": {"kind": "pinned", "size": size}},
        "contents": {"memory": {"value": 7}},
    }
    out: dict[str, list[float]] = {}

    def note(what: str, took: float) -> None:
        out.setdefault(what, []).append(size / took / 1e9)

    with hipplan.apply(plan, runtime=chosen.kind) as layout:
        for _ in range(rounds):
            note("plain copy out", seconds(lambda: layout.copy("memory", "pinned")))
            note("plain copy in", seconds(lambda: layout.copy("pinned", "memory")))
            note("remap to the host", seconds(lambda: layout.remap("memory", device="host")))
            for name, took in kernels(layout):
                note(f"{name} on the host", took)
            note("remap to the GPU", seconds(lambda: layout.remap("memory", device="gpu.0")))
            for name, took in kernels(layout):
                note(f"{name} on the GPU", took)
            layout.remap("memory", device="host")
            note("remap to the GPU, kept", seconds(lambda: layout.remap("memory", device="gpu.0", retain=True)))
            note("remap to the host, kept", seconds(lambda: layout.remap("memory", device="host")))
            layout.remap("memory", device="gpu.0", retain=True)
            note("sleep, mapped, kept", seconds(lambda: layout.sleep("memory", to="mapped")))
            note("wake, mapped, kept", seconds(lambda: layout.wake(retain=True)))
            layout.sleep("memory", to="mapped")
            layout.wake()
    return {"GB/s": {what: round(median(rates), 2) for what, rates in out.items()}, "all": out}


def kernels(layout: Any) -> list[tuple[str, float]]:
    try:
        import torch
    except ImportError:
        return []
    if not torch.cuda.is_available():
        return []
    words = torch.from_dlpack(layout["memory"].view("i32"))
    torch.cuda.synchronize()
    reads = seconds(lambda: (words.sum(), torch.cuda.synchronize()))
    writes = seconds(lambda: (words.fill_(3), torch.cuda.synchronize()))
    return [("kernels read", reads), ("kernels write", writes)]


def main() -> None:
    parser = arguments(__doc__ or "", rounds=3)
    parser.add_argument("--gib", type=float, default=8.0)
    parser.add_argument("--chunk-mib", type=positive, default=512, help="of a chunk (default: 512)")
    given = parser.parse_args()
    chosen = opened(given)
    size = round(given.gib * 1024) * MIB
    figures = measure(chosen, size, given.chunk_mib * MIB, given.rounds)
    rates = figures["GB/s"]
    for what, rate in rates.items():
        print(f"{what:28} {rate:8.2f} GB/s")
    out = ("remap to the host", "remap to the host, kept", "sleep, mapped, kept")
    back = ("remap to the GPU", "remap to the GPU, kept", "wake, mapped, kept")
    for move, copy in (*((move, "plain copy out") for move in out), *((move, "plain copy in") for move in back)):
        print(f"{move}, ratio to the {copy}: {rates[move] / rates[copy]:.3f}")
    keep(given.json, "host_tier", chosen, {"bytes": size, "chunk": given.chunk_mib * MIB, **figures})


if __name__ == "__main__":
    main()
