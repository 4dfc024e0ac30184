"""One rank of test_ranks.py and of benchmarks: `python -m tests.hardware.rank FOLDER RANK SIZE WHAT`; prints JSON.

Each rank uses the device of its own number, or, where there are fewer, the ranks share them.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import hipplan
from hipplan.machines.runtimes import choose
from hipplan.ranks.agreement import LayoutRanks
from tests.descriptors import opened
from tests.hardware import kernel
from tests.hardware.machine import MIB, Held, Machine

CHUNK = 4 * MIB
WAIT_S = 60.0
ROWS = 8
STANDIN = "kfdsim"
"""Of the stand-in for AMD's driver, which has a descriptor where a kernel has an object of its own: HIP 6.4 keeps what
it has imported from another process until the process ends."""


def plan(machine: Machine, size: int) -> dict[str, Any]:
    """A symmetric heap with a row for each rank in each part."""
    tensors = {
        "inbox": {"dtype": "i32", "shape": [size, 1024]},
        "flag": {"dtype": "i32", "shape": [64]},
        "rest": {"dtype": "u8", "shape": [-1]},
    }
    return {
        "hipplan": 1,
        "ranks": {"count": size},
        "devices": {"gpu": {"ordinal": f"$(local_rank % {machine.linked})"}},
        "regions": {
            "heap": {
                "device": "gpu",
                "size": CHUNK,
                "chunk": CHUNK,
                "reserve": 64 * CHUNK,
                "map": {"ranks": "node", "access": "rw"},
                "addresses": "symmetric",
                "tensors": tensors,
            }
        },
        "contents": {"heap.inbox": {"value": -1}, "heap.flag": {"value": 0}},
    }


class Here:
    """This rank."""

    def __init__(self, folder: str, rank: int, size: int) -> None:
        self.machine = Machine(choose(None))
        self.rank, self.size = rank, size
        self.device = rank % self.machine.linked
        self.group = hipplan.group(folder, rank, size, local_rank=rank)
        self.ranks = LayoutRanks(self.group, WAIT_S)
        self.plan = plan(self.machine, size)

    @contextmanager
    def applied(self) -> Iterator[Any]:
        layout = hipplan.apply(self.plan, runtime=self.machine.wanted, group=self.group)
        with layout:
            yield layout

    def torch(self) -> Any:
        """PyTorch with this rank's device as the current one."""
        result = import_module("torch")
        result.cuda.set_device(self.device)
        return result


def write_to_peers(here: Here) -> Any:
    """A kernel of each rank writes a row of everybody's inbox. Returns this rank's own rows."""
    with here.applied() as layout:
        addresses = [layout.rank(other)["heap"].address for other in range(here.size)]
        if here.machine.simulated or kernel.available():  # no kernels here: copies by this rank's own device
            for other in range(here.size):
                layout.rank(other)["heap.inbox"]  # there is one
                row = layout.rank(other)["heap"].address + here.rank * 4096
                here.machine.write_by(here.device, row, here.rank.to_bytes(4, "little") * 1024)
        else:
            torch = here.torch()
            for other in range(here.size):
                inbox = torch.from_dlpack(layout.rank(other)["heap.inbox"])
                assert inbox.device.index == here.device
                inbox[here.rank].copy_(torch.arange(1024, dtype=torch.int32, device=inbox.device) * 0 + here.rank)
                del inbox
            torch.cuda.synchronize()
        layout.barrier()
        rows = here.machine.read_by(here.device, layout["heap.inbox"].address, here.size * 4096)
        values = [int.from_bytes(rows[at : at + 4], "little") for at in range(0, len(rows), 4)]
        layout.barrier()
        return {"addresses": addresses, "rows": [sorted(set(values[n * 1024 :][:1024])) for n in range(here.size)]}


def grow_under_a_graph(here: Here) -> Any:
    """A captured graph writes into the next rank's flag, before and after the heaps have grown."""
    torch = here.torch()
    other = (here.rank + 1) % here.size
    with here.applied() as layout:
        flag = torch.from_dlpack(layout.rank(other)["heap.flag"])
        stream = torch.cuda.Stream()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            flag.add_(0)  # what PyTorch loads at first is not for the graph
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            flag.add_(1)
        graph.replay()
        torch.cuda.synchronize()
        layout.grow("heap", by=2 * CHUNK)
        graph.replay()
        torch.cuda.synchronize()
        layout.barrier()
        mine = torch.from_dlpack(layout["heap.flag"])
        sizes = [layout.rank(number)["heap"].size for number in range(here.size)]
        rest = torch.from_dlpack(layout.rank(other)["heap.rest"])
        rest[-1] = here.rank + 1  # memory that came
        torch.cuda.synchronize()
        layout.barrier()
        last = int(torch.from_dlpack(layout["heap.rest"])[-1])
        value = [int(item) for item in mine.unique()]
        layout.barrier()
        del graph, flag, mine, rest
        return {"flag": value, "sizes": sizes, "last": last}


def lose_one(here: Here) -> Any:
    """The last rank is killed. The others see it go, still read what it had, and give everything back."""
    with here.applied() as layout:
        layout.fill("heap", 7)
        layout.barrier()
        if here.rank == here.size - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        until = time.monotonic() + WAIT_S
        while here.size - 1 not in layout.lost and time.monotonic() < until:
            time.sleep(0.01)
        lost = layout.lost.get(here.size - 1)
        there = layout.rank(here.size - 1)["heap"].address
        seen = set(here.machine.read_by(here.device, there, CHUNK))
        drift = len(layout.drift())
    return {"lost": lost, "seen": sorted(seen), "drift": drift, "alive": here.machine.alive()}


def cycles(here: Here, count: int) -> Any:
    """Free memory and descriptors after the first few and after all cycles."""

    def cycle() -> None:
        with here.applied() as layout:
            layout.grow("heap", by=CHUNK)

    def held() -> Held:
        here.ranks.barrier()  # all have closed theirs
        files = tuple(name for _, name in opened() if STANDIN not in name)
        result = replace(Held.by(here.machine), files=files)
        here.ranks.barrier()  # and no rank has begun the next cycle
        return result

    for _ in range(3):
        cycle()
    held()  # asking a device takes a context on it
    before = held()
    for _ in range(count):
        cycle()
    after = held()
    same = after.same(before, here.machine.slack)
    return {"same": same, "lost": sum(before.free) - sum(after.free), "before": str(before), "after": str(after)}


def main() -> None:
    folder, rank, size, what, *more = sys.argv[1:]
    script: Callable[..., Any] = {
        "write": write_to_peers, "graph": grow_under_a_graph, "lose": lose_one, "cycles": cycles
    }[what]  # fmt: skip
    result = script(Here(folder, int(rank), int(size)), *map(int, more))
    Path(f"{folder}.{rank}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
