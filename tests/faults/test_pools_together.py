"""Sleep and wake of several pools for PyTorch, and of a region beside them: all of them or none, whichever call fails,
and no tensor loses its bytes, not even where they were to be dropped."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan import _core
from hipplan.errors import LayoutInUse
from hipplan.layout.layout import Layout
from hipplan.layout.undo import wait_until_freed
from tests.conftest import Simulator
from tests.faults.harness import FOR_EVER, ONCE, RELEASING, chosen, require_reported, require_turn
from tests.faults.test_pools import attempt, calls_of, release
from tests.layout.native_pool import Allocator

pytestmark = pytest.mark.in_parts

__all__ = ["release"]

KIB = 2**10
POOLS = {"first": "gpu.0", "second": "gpu.1", "third": "gpu.0"}
REGION = "plain"
PLAN: dict[str, Any] = {
    "hipplan": 1,
    "devices": {"gpu": {"count": 2}},
    "regions": {
        name: {"device": device, "size": 0, "reserve": "16MiB", "chunk": "64KiB", "torch": {"tag": name}}
        for name, device in POOLS.items()
    }
    | {REGION: {"device": "gpu.1", "size": "2MiB"}},
}
NAMES = "first|second|third|plain|#probe|nothing was changed|read back"
"""An error has a name, but for that of a question before the first change or after the last, which has no object."""
SIZES = (48 * KIB, 96 * KIB)
"""Of the tensors in each pool, each in a chunk of its own."""


class Tensors:
    """A layout with tensors in three pools, each with a number in all of its bytes."""

    def __init__(self, sim: Simulator) -> None:
        self.sim = sim
        self.layout: Layout = hipplan.apply(PLAN, runtime="sim")
        self.layout.fill(REGION, 99)
        self.allocators = {name: Allocator(self.layout, name, sim) for name in POOLS}
        self.live: dict[int, tuple[int, int]] = {}
        for allocator in self.allocators.values():
            for size in SIZES:
                self.live[allocator.block(size)] = (size, len(self.live) + 1)
        for address, (size, number) in self.live.items():
            sim.fill(address, number, size)

    @property
    def states(self) -> dict[str, tuple[str, int]]:
        """Of each pool: what it does, and the bytes that it has of its device."""
        return {pool.region: (pool.state, pool.mapped) for pool in self.layout.usage()}

    def require_alive(self, *, dropped: bool) -> None:
        """All tensors are mapped, with their bytes unless these were dropped, and there is room for more."""
        for address, (size, number) in self.live.items():
            if dropped:
                self.sim.fill(address, number, size)
            assert self.sim.read(address, size) == bytes([number]) * size
        for allocator in self.allocators.values():
            allocator.free(allocator.block(48 * KIB))

    def close(self) -> None:
        for allocator in self.allocators.values():
            for address in allocator.blocks:
                allocator.free(address)
        self.layout.close()


Act = Callable[[Tensors], Any]


def sleep(*more: str, **how: Any) -> Act:
    return lambda tensors: tensors.layout.sleep([*POOLS, *more], **how)


def wake(**how: Any) -> Act:
    def act(tensors: Tensors) -> None:
        try:
            tensors.layout.wake(**how)
        finally:
            wait_until_freed()

    return act


def slept_once(tensors: Tensors) -> None:
    sleep()(tensors)
    tensors.layout.wake(retain=True)


def nothing(tensors: Tensors) -> None:
    pass


ACTS: dict[str, tuple[Act, Act]] = {
    "sleep": (nothing, sleep()),
    "sleep in the copies that were kept": (slept_once, sleep()),
    "sleep, with a region": (nothing, sleep(REGION)),
    "drop": (nothing, sleep(to="drop")),
    "drop, with a region": (nothing, sleep(REGION, to="drop")),
    "wake": (sleep(), wake()),
    "wake and keep the copies": (sleep(), wake(retain=True)),
    "wake, with a region": (sleep(REGION), wake()),
    "wake what was dropped": (sleep(to="drop"), wake()),
}
"""What comes before, in which no call fails; and what calls fail in."""


@pytest.mark.parametrize("mode", [ONCE, FOR_EVER], ids=["once", "for ever"])
@pytest.mark.parametrize("what", ACTS)
def test_whichever_call_fails_all_pools_have_done_it_or_none(
    what: str, mode: str, release: Simulator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    require_turn(release, mode, [*ACTS].index(what))
    sim = release
    first, act = ACTS[what]
    was_dropped = what == "wake what was dropped"
    calls = calls_of(Tensors(sim), first, act, tmp_path / "trace")
    for n, call in chosen(calls):
        caplog.clear()
        empty, tensors = sim.alive(), Tensors(sim)
        first(tensors)
        before, alive = tensors.states, sim.alive()
        sim.runtime.arm_faults(f"*@{n}{mode}=hipErrorOutOfMemory")
        error, _ = attempt(partial(act, tensors))
        wait_until_freed()
        assert sim.runtime.faults_fired(), (n, call)
        sim.runtime.arm_faults("")

        done = tensors.states != before
        if "HP401" in error or "HP442" in error:
            assert re.search(NAMES, error), (n, call, error)
        if mode == ONCE:
            assert done or error, (n, call)
            assert not done or not ("HP401" in error or "HP442" in error), (n, call, error)
            assert len({state for state, _ in tensors.states.values()}) == 1, (n, call, error)
            assert done or sim.alive() == alive or caplog.messages or call in RELEASING, (n, call, error)
        else:  # a report says what could not be mapped again
            done = not error or ("HP403" in error and "HP401" not in error and "#probe" not in error)
        dropped = was_dropped or (done and "drop" in what)
        more, _ = attempt(partial(tensors.layout.wake, [*POOLS]))
        known = "\n".join([error, more, *caplog.messages, *_core.take_leaks()])
        if mode == ONCE or "hipMemUnmap(" not in known:
            assert more == "" or (mode == FOR_EVER and "HP401" not in more), (n, call)  # copies that could not be freed
            tensors.require_alive(dropped=dropped)
        if mode == ONCE:
            tensors.layout.wake()
            assert dropped or (tensors.layout.read(REGION) == 99).all()
        known += "\n".join([attempt(tensors.close)[0], *caplog.messages, *_core.take_leaks()])
        may_be_left = mode == FOR_EVER or call in RELEASING
        require_reported(sim, empty, known, may_be_left=may_be_left, failed=(n, call))


def test_what_cannot_be_mapped_again_keeps_its_bytes_and_a_wake_tries_again(
    sim: Simulator, caplog: pytest.LogCaptureFixture
) -> None:
    tensors = Tensors(sim)  # one device is probed, and each pool has three pieces
    sim.runtime.arm_faults("hipMemUnmap@9=hipErrorUnknown; hipMemMap@1+=hipErrorOutOfMemory")
    error, _ = attempt(lambda: tensors.layout.sleep([*POOLS], to="drop"))
    assert "HP401" in error and "the pool 'third' cannot sleep" in error
    assert tensors.layout.asleep == dict.fromkeys(POOLS, "drop")
    stays = "the pool '{}' stays asleep, with its bytes; wake() tries again to map its memory. driver: hipMemMap("
    assert all(any(line.startswith(stays.format(name)) for line in caplog.messages) for name in POOLS)
    more, _ = attempt(tensors.layout.wake)
    assert "the pool 'first' is still asleep" in more
    sim.runtime.arm_faults("")
    tensors.layout.wake()
    tensors.require_alive(dropped=False)
    tensors.close()
    assert sim.alive() == set()


def test_what_cannot_be_unmapped_again_keeps_its_bytes_and_a_wake_tries_again(sim: Simulator) -> None:
    tensors = Tensors(sim)
    tensors.layout.sleep([*POOLS])
    sim.runtime.arm_faults("hipMemSetAccess@9=hipErrorUnknown; hipMemUnmap@1+=hipErrorUnknown")
    error, _ = attempt(tensors.layout.wake)
    assert "HP401" in error and "the pool 'third' is still asleep" in error
    assert tensors.layout.asleep == dict.fromkeys(POOLS, "host")
    sim.runtime.arm_faults("")
    _core.take_leaks()  # a mapping of the chunk whose access failed; nothing can be mapped there any more
    tensors.layout.wake(["first", "second"])
    for address, (size, number) in [*tensors.live.items()][:4]:
        assert sim.read(address, size) == bytes([number]) * size
    attempt(tensors.close)
    sim.free_everything()


def test_dropped_bytes_are_there_where_something_beside_cannot_sleep(sim: Simulator) -> None:
    tensors = Tensors(sim)
    lease = _core.Lease(tensors.layout[REGION])
    with pytest.raises(LayoutInUse):
        tensors.layout.sleep([*POOLS, REGION], to="drop")
    del lease
    assert tensors.layout.asleep == {}
    tensors.require_alive(dropped=False)
    tensors.close()


def test_without_room_for_all_none_wakes(sim: Simulator) -> None:
    tensors = Tensors(sim)
    tensors.layout.sleep([*POOLS])
    before, alive = tensors.states, sim.alive()
    rest = tensors.layout.runtime.memory_info(0)[0] - 256 * KIB  # enough for one of the two pools on this device
    other = {"all": {"kind": "device", "device": "gpu.0", "size": rest}}
    with hipplan.apply({"hipplan": 1, "devices": {"gpu": {"count": 2}}, "buffers": other}, runtime="sim"):
        error, _ = attempt(tensors.layout.wake)
        assert "HP442" in error and "to wake the pool 'third'" in error
    assert (tensors.states, sim.alive()) == (before, alive)
    tensors.layout.wake()
    tensors.require_alive(dropped=False)
    tensors.close()


def test_a_change_that_is_dropped_undecided_is_taken_back(sim: Simulator) -> None:
    """As where an interrupt comes between two instructions of Python."""
    tensors, report = Tensors(sim), _core.UndoReport()
    pools = [allocator.pool.native for allocator in tensors.allocators.values()]
    change = _core.PoolsChange()
    for pool in pools:
        pool.stop()
        change.sleep(pool, False, report)
        with pytest.raises(_core.PoolStateError, match="stopped by another change"):
            change.sleep(pool, False, report)
        pool.resume()  # of another thread
        assert pool.state == "stopped"
        pool.free_chunks(pool.mark(), report)
    del change
    for pool in pools:
        pool.resume()
    tensors.require_alive(dropped=False)
    tensors.layout.sleep([*POOLS])
    change = _core.PoolsChange()
    for pool in pools:
        change.wake(pool, report)
    del change
    assert tensors.layout.asleep == dict.fromkeys(POOLS, "host")
    tensors.layout.wake()
    tensors.require_alive(dropped=False)
    tensors.close()
    assert sim.alive() == set()


def test_a_layout_that_is_closed_meanwhile_is_left_alone(sim: Simulator) -> None:
    tensors, report = Tensors(sim), _core.UndoReport()
    change, pool = _core.PoolsChange(), tensors.allocators["first"].pool.native
    pool.stop()
    change.sleep(pool, False, report)
    tensors.layout.close(force=True)
    change.commit(False, report)
    assert (pool.state, report.leaks) == ("closed", [])
    tensors.close()
    hipplan.apply({"hipplan": 1}, runtime="sim").close()  # frees what has waited for the tensors
    assert sim.alive() == set()
