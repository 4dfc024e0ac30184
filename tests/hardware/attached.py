"""A client of test_holders.py: `python -m tests.hardware.attached NAME HOW`; prints JSON.

HOW: whole reads every byte; some the first, last and middle ones of each tensor; kill too, and then ends itself; write
tries to fill each tensor with its number, and then is as whole.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

import hipplan
from hipplan.machines.runtimes import choose


def main() -> None:
    name, how = sys.argv[1:]
    chosen = choose(os.environ.get("HIPPLAN_RUNTIME", "sim"))
    chosen.runtime.memory_info(0)  # the context, which every client of a GPU pays for
    began = time.perf_counter()
    with hipplan.attach(name) as layout:
        took = time.perf_counter() - began
        addresses = {name: layout[name].address for name in layout if hasattr(layout[name], "address")}
        tensors = [item for item in layout if layout[item].kind == "tensor"]
        refused = [] if how != "write" else _written(layout, tensors)
        differing = sum(_differing(layout, tensor, number, how) for number, tensor in enumerate(tensors))
        report = {
            "addresses": addresses,
            "refused": refused,
            "differing": differing,
            "ms": took * 1e3,
            "drift": len(layout.drift()),
        }
        print(json.dumps(report), flush=True)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)


def _written(layout: Any, tensors: list[str]) -> list[str]:
    """Fills each tensor with its number. Those that may not be written."""
    refused = []
    for number, name in enumerate(tensors):
        try:
            layout.fill(name, number)
        except hipplan.ApplyError as error:
            assert error.diagnostics[0].code == "HP213", error
            refused.append(name)
    return refused


def _differing(layout: Any, name: str, number: int, how: str) -> int:
    """Elements that are not the tensor's number."""
    if how in ("whole", "write"):
        return int((layout.read(name) != number).sum())
    piece, count = layout[name], 0
    size = min(piece.size, 1 << 16)
    for at in {0, (piece.size - size) // 2 // 4 * 4, piece.size - size}:
        some = memoryview(layout.runtime.read(piece.address + at, size)).cast("I")
        count += sum(item != number for item in some)
    return count


if __name__ == "__main__":
    main()
