"""In a process of its own: refuses each request for memory of a piece of work in turn, and prints what came of it.

test_short_of_memory.py starts it with refusing.c before its malloc(). Judged by what is left and what was reported.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hipplan import _core
from hipplan.errors import HipplanError, driver_failure
from hipplan.language.loader import load
from hipplan.layout.layout import Layout
from hipplan.layout.options import Options
from hipplan.layout.prepare import prepare
from hipplan.layout.run import run
from hipplan.layout.undo import wait_until_freed
from hipplan.machines.runtimes import choose
from hipplan.program.program import Program
from tests.conftest import WHOLE, Simulator, keys_of
from tests.faults.harness import as_release
from tests.faults.test_changes import become
from tests.layout.native_pool import Allocator

MIB = 2**20
STEP = 1 if WHOLE else 16
"""Each so many-th request is refused."""
RESERVED_MIN = 16 * MIB
"""Shorter ranges without rights are the C library's."""
Plan = dict[str, Any]
Act = Callable[[Layout], Any]
"""What is done with a live layout."""
Maybe = Layout | None

MAPPED: Plan = {
    "allocations": {"a": {"device": "gpu.1", "size": "2MiB", "count": 2}},
    "reservations": {"r": {"access": {"gpu.0": "r", "gpu.1": "rw"}, "mappings": [{"allocation": "a.*"}]}},
}
SHARED = {"allocations": {"shared": {"device": "gpu.0", "size": "2MiB", "shareable": "posix_fd"}}}
FULL = {
    "allocations": {"part": {"device": "gpu.0", "size": "2MiB"}},
    "reservations": {"full": {"size": "2MiB", "address": 0x7E0000000000, "mappings": [{"allocation": "part"}]}},
}
REGION = {"regions": {"hot": {"device": "gpu.0", "size": "4MiB", "chunk": "2MiB", "reserve": "16MiB"}}}
ON_HOST = {"regions": {"hot": {"devices": ["gpu.1", "host"], "sizes": ["2MiB", "2MiB"], "chunk": "2MiB"}}}
FULL_DEVICE = {
    "regions": {"hot": {"device": "gpu.0", "size": "2MiB", "chunk": "2MiB", "reserve": "32MiB", "overflow": "host"}},
    "buffers": {"rest": {"kind": "device", "device": "gpu.0", "size": "fill", "reserve": "3MiB"}},
}
"""Has room for one more chunk."""
MANAGED = {
    "streams": {"queue": {"device": "gpu.1"}},
    "buffers": {
        "table": {
            "kind": "managed",
            "size": "256KiB",
            "advice": [{"advise": "preferred_location", "device": "gpu.1"}],
            "prefetch": [{"to": "gpu.1", "stream": "queue"}],
            "attach_to": {"stream": "queue", "mode": "single"},
        }
    },
}

PLANS: dict[str, Plan] = {
    "peer links": {"peers": "all", "buffers": {"linked": {"kind": "device", "device": "gpu.0", "size": "1MiB"}}},
    "mappings": MAPPED,
    "import": {
        "allocations": {"given": {"bind": "shared", "size": "2MiB", "shareable": "posix_fd"}},
        "reservations": {"theirs": {"mappings": [{"allocation": "given", "access": {"gpu.0": "rw"}}]}},
    },
    "coherent": {"buffers": {"flags": {"kind": "coherent", "size": "64KiB", "device": "gpu.1"}}},
    "pinned": {"buffers": {"staging": {"kind": "pinned", "size": "1MiB", "device": "gpu.1"}}},
    "registered": {
        "buffers": {
            "fresh": {"kind": "registered", "anonymous": {"size": "64KiB"}, "device": "gpu.1"},
            "callers": {"kind": "registered", "bind": "caller"},
        }
    },
    "managed": MANAGED,
    "contents": {**REGION, "contents": {"hot": {"value": 7}}},
    "sealed": {
        "regions": {
            "hot": {
                "devices": ["gpu.0", "gpu.1"],
                "access": {"owner": "rw", "others": "r"},
                "size": "4MiB",
                "seal": True,
            }
        },
        "contents": {"hot": {"value": 7}},
    },
}
"""By kind of object; together they take every kind of step."""

_TABLE: dict[str, Any] = MANAGED["buffers"]["table"]
OTHER_ADVICE = {**MANAGED, "buffers": {"table": {**_TABLE, "advice": [{"advise": "read_mostly"}]}}}


def _sleep_and_wake(layout: Layout) -> None:
    layout.sleep("hot", to="drop")
    layout.wake()


def _awake(layout: Layout) -> None:
    layout.sleep("hot")
    layout.wake()
    wait_until_freed()


def _mapped(layout: Layout) -> None:
    layout.sleep("hot", to="mapped")
    layout.wake()


def _overflowing(layout: Layout) -> None:
    layout.grow("hot", by="6MiB")
    layout.shrink("hot", to="2MiB")


def _part_there_and_back(layout: Layout) -> None:
    layout.remap("hot", part="..2MiB", device="host")
    layout.remap("hot", part="..2MiB", device="gpu.0", retain=True)
    layout.sleep("hot", to="mapped")
    layout.wake()


def _there_and_back(layout: Layout) -> None:
    layout.remap("hot", device="host")
    layout.remap("hot", device="gpu.0", retain=True)
    layout.remap("hot", device="host")


CHANGES: dict[str, tuple[Plan, Callable[[], Act]]] = {
    "grow": (REGION, lambda: lambda layout: layout.grow("hot", by="4MiB")),
    "shrink": (REGION, lambda: lambda layout: layout.shrink("hot", by="2MiB")),
    "grow beside": (FULL, lambda: lambda layout: layout.grow("full", by="4MiB")),
    "remap": (REGION, lambda: lambda layout: layout.remap("hot")),
    "remap a part": (REGION, lambda: lambda layout: layout.remap("hot", part="2MiB..4MiB", device="gpu.1")),
    "remap to the host": (REGION, lambda: lambda layout: layout.remap("hot", device="host")),
    "remap from the host": (ON_HOST, lambda: lambda layout: layout.remap("hot", device="gpu.1")),
    "remap there and back, twice": (REGION, lambda: _there_and_back),
    "remap a part there and back, then sleep there": (REGION, lambda: _part_there_and_back),
    "grow on the host and shrink": (FULL_DEVICE, lambda: _overflowing),
    "wake": (REGION, lambda: _awake),
    "sleep on the host and wake": (REGION, lambda: _mapped),
    "sleep": (REGION, lambda: lambda layout: layout.sleep("hot")),
    "sleep and wake": (REGION, lambda: _sleep_and_wake),
    "seal": (MAPPED, lambda: lambda layout: layout.seal("r")),
    "update": (MAPPED, lambda: become(complete(PLANS["peer links"] | REGION))),
    "other advice": (MANAGED, lambda: become(complete(OTHER_ADVICE))),
    "fill": (REGION, lambda: lambda layout: layout.fill("hot", 3)),
    "export": (SHARED, lambda: _exported),
    "view": (PLANS["pinned"], lambda: lambda layout: memoryview(layout["staging"]).release()),
    "capsule": (REGION, lambda: lambda layout: layout["hot"].__dlpack__(max_version=(1, 0))),
    "verify": (MAPPED, lambda: lambda layout: layout.drift()),
    "close": (MANAGED, lambda: lambda layout: layout.close()),
    "close, of mappings": (MAPPED, lambda: lambda layout: layout.close()),
}


def complete(plan: Plan) -> Plan:
    return {"hipplan": 1, "devices": {"gpu": {"count": 2}}, **plan}


def program_of(plan: Plan) -> Program:
    return prepare(load(complete(plan)), choose("sim"), None)


def _exported(layout: Layout) -> None:
    try:
        os.close(layout.export("shared"))
    except _core.HipError as error:  # as it documents: the driver had no memory
        raise driver_failure(error, "shared") from error


PYTHONS_OWN = ["can't allocate lock"]
"""Where Python itself has other words than MemoryError for it."""


class Refusals:
    """Counts what was refused; keeps what was wrong."""

    def __init__(self, sim: Simulator) -> None:
        self.sim = sim
        self.malloc = ctypes.CDLL(os.environ["LD_PRELOAD"])
        self.malloc.refuse.argtypes, self.malloc.refuse.restype = [ctypes.c_long], ctypes.c_long
        self.refused = 0
        self.wrong: list[str] = []

    def sweep(
        self, begin: Callable[[], Maybe], act: Callable[[Maybe], Maybe], end: Callable[[Layout], str] = lambda _: ""
    ) -> None:
        """act: gives the layout that there is behind it. end: comes before it is closed, and says what is wrong."""
        for _ in range(2):  # what is made once for the process
            self._once(0, begin, act, end)
        reserved = _reserved_bytes()
        nth, refused = 1 - STEP, -1
        while self.refused > refused:
            nth, refused = nth + STEP, self.refused
            self._once(nth, begin, act, end)
            if (lost := _reserved_bytes() - reserved) > 0:
                self.wrong.append(f"{nth}: {lost:,} bytes of addresses are lost")
                return

    def _once(
        self, nth: int, begin: Callable[[], Maybe], act: Callable[[Maybe], Maybe], end: Callable[[Layout], str]
    ) -> None:
        before, free_before = self.sim.alive(), self._free()
        layout = begin()
        errors: list[BaseException] = []
        self.malloc.refuse(nth)
        try:
            layout = act(layout)
        except Exception as error:
            unspent = self.malloc.refuse(0)
            errors.append(error)
        else:
            unspent = self.malloc.refuse(0)
        self.refused += nth > 0 and unspent == 0
        what = repr(errors[0]) if errors else "no error"
        if errors and not isinstance(errors[0], (MemoryError, HipplanError)) and str(errors[0]) not in PYTHONS_OWN:
            self.wrong.append(f"{nth}: {what}")
        if errors and layout is not None and layout.closed and self.sim.alive() == before:
            self.wrong.append(f"{nth}: {what}, although everything was freed")
        try:
            if layout is not None:
                if wrong := end(layout):
                    self.wrong.append(f"{nth}: {what}: {wrong}")
                layout.close()
        except HipplanError as error:
            errors.append(error)
        reported = set().union(*(self._reported(error) for error in errors))
        errors.clear()
        del layout
        gc.collect()
        left = self.sim.alive() - before
        if left != reported & left:
            self.wrong.append(f"{nth}: {what}: left {sorted(left)}, reported {sorted(reported)}")
        self.sim.free_everything(but=before)
        if (free := self._free()) != free_before:
            self.wrong.append(f"{nth}: {what}: free on the devices are {free} bytes, and were {free_before}")
        if report := _core.take_leaks():
            self.wrong.append(f"{nth}: {what}: {report}")

    def _free(self) -> list[int]:
        return [device["free"] for device in self.sim.ledger()["devices"]]

    def _reported(self, error: BaseException | None) -> set[Any]:
        if error is None:
            return set()
        undone = getattr(error, "undone", None)
        return (set() if undone is None else keys_of(undone.failures)) | self._reported(error.__cause__)


def _reserved_bytes() -> int:
    """Addresses of this process without memory, in ranges as long as the simulator's."""
    lines = [line.split()[:2] for line in Path("/proc/self/maps").read_text().splitlines()]
    ranges = [[int(end, 16) for end in place.split("-")] for place, rights in lines if rights == "---p"]
    return sum(end - start for start, end in ranges if end - start >= RESERVED_MIN)


def sweep_plan(sim: Simulator, plan: Plan, bind: dict[str, Any]) -> Refusals:
    program, refusals = program_of(plan), Refusals(sim)
    for on_step in (None, lambda number, step: None):  # many steps at once, and one by one
        refusals.sweep(lambda: None, lambda _: run(program, sim.runtime, Options(bind=bind, on_step=on_step)))  # noqa: B023
    return refusals


def sweep_change(sim: Simulator, plan: Plan, make: Callable[[], Act]) -> Refusals:
    program, change, refusals = program_of(plan), make(), Refusals(sim)

    def act(layout: Maybe) -> Maybe:
        assert layout is not None
        change(layout)
        return layout

    refusals.sweep(lambda: run(program, sim.runtime), act)
    return refusals


POOLS = ("first", "second", "third")
IN_POOLS = {
    "regions": {
        name: {"device": f"gpu.{number % 2}", "size": 0, "reserve": "8MiB", "chunk": "2MiB", "torch": {"tag": name}}
        for number, name in enumerate(POOLS)
    }
}


def _all_asleep(layout: Layout) -> None:
    layout.sleep(POOLS)


def _all_awake(layout: Layout) -> None:
    layout.wake()
    wait_until_freed()


POOL_CHANGES: dict[str, tuple[Act, Act]] = {
    "sleep of pools": (lambda layout: None, _all_asleep),
    "drop of pools": (lambda layout: None, lambda layout: layout.sleep(POOLS, to="drop")),
    "wake of pools": (_all_asleep, _all_awake),
}
"""What comes before, with all the memory that it wants; and what is refused memory."""


def sweep_pools(sim: Simulator, first: Act, act: Act) -> Refusals:
    """Of several pools with a tensor each: all have done it, or none; each tensor keeps its bytes."""
    program, refusals = program_of(IN_POOLS), Refusals(sim)
    tensors: list[tuple[Allocator, int]] = []

    def begin() -> Layout:
        layout = run(program, sim.runtime)
        tensors[:] = [(allocator, allocator.block(MIB)) for allocator in (Allocator(layout, name) for name in POOLS)]
        for number, (_, address) in enumerate(tensors):
            sim.fill(address, number + 1, MIB)
        first(layout)
        return layout

    def done(layout: Maybe) -> Maybe:
        assert layout is not None
        act(layout)
        return layout

    def end(layout: Layout) -> str:
        wrong, asleep = [], layout.asleep
        if len(asleep) not in (0, len(POOLS)):
            wrong.append(f"only {', '.join(asleep)} asleep")
        layout.wake()
        for number, (allocator, address) in enumerate(tensors):
            if "drop" not in asleep.values() and sim.read(address, MIB) != bytes([number + 1]) * MIB:
                wrong.append(f"the tensor in '{POOLS[number]}' has lost its bytes")
            allocator.free(address)
        return "; ".join(wrong)

    refusals.sweep(begin, done, end)
    return refusals


def main() -> None:
    gc.freeze()  # each look for garbage is at what comes from here on
    sim = Simulator()
    shared = run(program_of(SHARED), sim.runtime)
    bind = {"shared": shared.export("shared"), "caller": bytearray(65536)}
    collected = {what: sweep_plan(sim, plan, bind) for what, plan in PLANS.items()}
    collected |= {what: sweep_change(sim, *change) for what, change in CHANGES.items()}
    collected |= {what: sweep_pools(sim, *change) for what, change in POOL_CHANGES.items()}
    shared.close()
    with as_release(sim, "7.2.53211", "free_blocks_first"):  # addresses as CUDA chooses them
        collected["a wanted address, as on CUDA"] = sweep_plan(sim, FULL, {})
    for what, refusals in collected.items():
        print(json.dumps({"what": what, "refused": refusals.refused, "wrong": refusals.wrong}))


if __name__ == "__main__":
    main()
