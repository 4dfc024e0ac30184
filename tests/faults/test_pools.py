"""Fail every driver call of a pool for PyTorch: what malloc, trim, sleep and wake leave is whole, or is reported."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan import _core
from hipplan.layout.layout import Layout
from hipplan.layout.undo import wait_until_freed
from tests.conftest import Simulator
from tests.faults.harness import (
    DEFECTS,
    FOR_EVER,
    ONCE,
    RELEASES,
    RELEASING,
    as_release,
    chosen,
    require_reported,
    require_turn,
)
from tests.layout.native_pool import Allocator

pytestmark = pytest.mark.in_parts

MIB = 2**20
PLAN: dict[str, Any] = {
    "hipplan": 1,
    "regions": {"weights": {"size": 0, "reserve": "16MiB", "chunk": "2MiB", "torch": {"tag": "weights"}}},
}
SIZES = (MIB, 2 * MIB, 3 * MIB)
"""Of the tensors, each in chunks of its own."""


Act = Callable[["Tensors"], Any]


class Tensors:
    """A layout with tensors in its pool, each with a number in all of its bytes."""

    def __init__(self, sim: Simulator) -> None:
        self.sim = sim
        self.layout: Layout = hipplan.apply(PLAN, runtime="sim")
        self.allocator = Allocator(self.layout, "weights", sim)
        self.live: dict[int, tuple[int, int]] = {}
        for number, size in enumerate(SIZES, 1):
            self.add(self.allocator.block(size), size, number)
        self.dead = self.allocator.block(2 * MIB)

    def add(self, address: int, size: int, number: int) -> None:
        self.live[address] = (size, number)
        self.sim.fill(address, number, size)

    def require_alive(self, dropped: bool) -> None:
        """All tensors are mapped, with their bytes unless these were dropped, and there is room for another one."""
        for address, (size, number) in self.live.items():
            if dropped:
                self.sim.fill(address, number, size)
            assert self.sim.read(address, size) == bytes([number]) * size
        self.allocator.free(self.allocator.block(MIB))

    def close(self) -> None:
        """Frees all blocks, and the layout."""
        for address in self.allocator.blocks:
            self.allocator.free(address)
        self.layout.close()


def malloc(tensors: Tensors) -> int | None:
    return tensors.allocator.malloc(5 * MIB)


def trim(tensors: Tensors) -> None:
    tensors.layout.trim("weights")


def one_freed(tensors: Tensors) -> None:
    tensors.allocator.free(tensors.dead)


def sleep(**how: Any) -> Act:
    return lambda tensors: tensors.layout.sleep("weights", **how)


def wake(**how: Any) -> Act:
    def act(tensors: Tensors) -> None:
        tensors.layout.wake("weights", **how)
        wait_until_freed()  # what fails there is in the report of a later call

    return act


def slept_once(tensors: Tensors) -> None:
    tensors.layout.sleep("weights")
    tensors.layout.wake("weights", retain=True)


def nothing(tensors: Tensors) -> None:
    pass


ACTS: dict[str, tuple[Act, Act]] = {
    "malloc": (nothing, malloc),
    "trim": (one_freed, trim),
    "sleep": (nothing, sleep()),
    "sleep in the copy that was kept": (slept_once, sleep()),
    "drop": (nothing, sleep(to="drop")),
    "wake": (sleep(), wake()),
    "wake and keep the copy": (sleep(), wake(retain=True)),
    "wake what was dropped": (sleep(to="drop"), wake()),
}
"""What comes before, in which no call fails; and what calls fail in."""


def calls_of(tensors: Any, first: Callable[[Any], Any], act: Callable[[Any], Any], to: Path) -> list[str]:
    """The driver calls of an act that nothing disturbs, in order. Closes the tensors. to: a file for the trace."""
    first(tensors)
    to.unlink(missing_ok=True)
    tensors.sim.runtime.trace_to(str(to))
    act(tensors)
    tensors.sim.runtime.trace_to("")
    tensors.layout.wake()
    tensors.close()
    return [json.loads(line)["call"] for line in to.read_text().splitlines()]


@pytest.fixture(params=RELEASES)
def release(sim: Simulator, request: pytest.FixtureRequest) -> Iterator[Simulator]:
    with as_release(sim, request.param, *DEFECTS.get(request.param, ())):
        sim.runtime.set_retry_pause(1)
        yield sim
        sim.runtime.set_retry_pause(1000)


@pytest.mark.parametrize("mode", [ONCE, FOR_EVER])
@pytest.mark.parametrize("what", ACTS)
def test_any_call_may_fail(
    what: str, mode: str, release: Simulator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever failed: no tensor is lost unless a report says that its mapping is, and all that is left is reported."""
    require_turn(release, mode, [*ACTS].index(what))
    sim = release
    first, act = ACTS[what]
    calls = calls_of(Tensors(sim), first, act, tmp_path / "trace")
    assert len(calls) >= 4
    for n, call in chosen(calls):
        caplog.clear()
        empty, tensors = sim.alive(), Tensors(sim)
        first(tensors)
        sim.runtime.arm_faults(f"*@{n}{mode}=hipErrorOutOfMemory")
        error, address = attempt(partial(act, tensors))
        assert sim.runtime.faults_fired(), (n, call)
        sim.runtime.arm_faults("")
        if what == "malloc":
            assert address is None and tensors.allocator.pool.native.why_full, (n, call)
        dropped = "drop" in (what, *tensors.layout.asleep.values()) or "dropped" in what

        more, _ = attempt(tensors.layout.wake)
        known = "\n".join([error, more, *caplog.messages, *_core.take_leaks()])
        if mode == ONCE or "hipMemUnmap(" not in known:
            assert more == "", (n, call)
            tensors.require_alive(dropped)
        known += "\n".join([attempt(tensors.close)[0], *caplog.messages, *_core.take_leaks()])
        may_be_left = mode == FOR_EVER or call in RELEASING
        require_reported(sim, empty, known, may_be_left=may_be_left, failed=(n, call))


def attempt(act: Callable[[], Any]) -> tuple[str, Any]:
    """The error of a call, in full, and what it returned."""
    try:
        return "", act()
    except hipplan.HipplanError as error:
        assert {diagnostic.code for diagnostic in error.diagnostics} <= {"HP401", "HP403", "HP406", "HP442"}, error
        return str(error), None


def test_free_makes_no_call(sim: Simulator, tmp_path: Path) -> None:
    tensors = Tensors(sim)
    sim.runtime.trace_to(str(trace := tmp_path / "trace"))
    Allocator(tensors.layout, "weights").free(tensors.dead)
    sim.runtime.trace_to("")
    assert not trace.exists() or trace.read_text() == ""
    tensors.close()
