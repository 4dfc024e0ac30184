"""Pools for PyTorch, without PyTorch: their C functions are called as its allocator calls them, on any runtime."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

import hipplan
from hipplan.errors import ApplyError, LeakError
from hipplan.layout.layout import Layout
from hipplan.layout.undo import wait_until_freed
from tests.hardware.machine import MIB, Machine, pattern
from tests.layout.native_pool import Allocator

CHUNK = 2 * MIB
SIZES = (MIB, 3 * MIB)
"""Of the tensors in each pool."""
CYCLES = int(os.environ.get("HIPPLAN_CYCLES", "10"))


class Tensors:
    """A layout with tensors in three pools, on one device or two, each with bytes of its own."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        devices = [f"gpu.{number % min(2, machine.count)}" for number in range(3)]
        regions = {
            f"pool{number}": {
                "device": device,
                "size": 0,
                "reserve": "32MiB",
                "chunk": CHUNK,
                "torch": {"tag": f"tag{number}"},
            }
            for number, device in enumerate(devices)
        }
        plan = {"hipplan": 1, "devices": {"gpu": {"count": min(2, machine.count)}}, "regions": regions}
        self.layout: Layout = hipplan.apply(plan, runtime=machine.wanted)
        self.allocators = [Allocator(self.layout, name) for name in regions]
        self.live = [(each.device, each.block(size), size) for each in self.allocators for size in SIZES]
        self.fill()

    def fill(self) -> None:
        for device, address, size in self.live:
            self.machine.write_by(device, address, pattern(size, address))

    @property
    def states(self) -> list[tuple[str, int]]:
        """Of each pool: what it does, and the bytes that it has of its device."""
        return [(pool.state, pool.mapped) for pool in self.layout.usage()]

    def require_bytes(self) -> None:
        for device, address, size in self.live:
            assert self.machine.read_by(device, address, size) == pattern(size, address)

    def require_alive(self) -> None:
        self.require_bytes()
        for each in self.allocators:
            each.free(each.block(MIB))

    def close(self) -> None:
        for each in self.allocators:
            for address in each.blocks:
                each.free(address)
        self.layout.close()


@pytest.fixture
def tensors(machine: Machine) -> Iterator[Tensors]:
    made = Tensors(machine)
    if machine.is_amd_before(7, 0):
        machine.slack = 8 * MIB  # it frees what write_by and read_by have freed with a delay
    yield made
    made.close()


def sleeps(layout: Layout, **how: Any) -> bool:
    """Puts all pools to sleep; False where this release returns memory only with its addresses, which is refused."""
    before = [pool.mapped for pool in layout.usage()]
    try:
        layout.sleep("pool*", **how)
    except ApplyError as refused:
        assert refused.diagnostics[0].code == "HP440" and "ROCm issue 6021" in str(refused)
        assert [pool.mapped for pool in layout.usage()] == before and layout.asleep == {}
        return False
    return True


def test_memory_comes_with_blocks_and_goes_with_trim(tensors: Tensors, machine: Machine) -> None:
    free = machine.runtime.memory_info(0)[0]
    allocator = tensors.allocators[0]
    block = allocator.block(10 * MIB)
    machine.write_by(0, block, pattern(10 * MIB, "block"))
    assert machine.read_by(0, block, 10 * MIB) == pattern(10 * MIB, "block")
    assert free - machine.runtime.memory_info(0)[0] >= 10 * MIB - machine.slack
    assert allocator.malloc(64 * MIB) is None and "reserves" in allocator.pool.native.why_full
    allocator.free(block)
    assert tensors.layout.trim() >= 10 * MIB
    assert abs(free - machine.runtime.memory_info(0)[0]) <= machine.slack
    tensors.require_alive()


def test_tensors_live_through_sleep(
    tensors: Tensors, machine: Machine, record_property: Callable[[str, object], None]
) -> None:
    free, taken = machine.runtime.memory_info(0)[0], sum(pool.mapped for pool in tensors.layout.usage())
    if not sleeps(tensors.layout):
        record_property("sleeps of pools refused", 1)
        tensors.require_alive()
        return
    if machine.count == 1:
        assert machine.runtime.memory_info(0)[0] >= free + taken - machine.slack
    assert set(tensors.layout.asleep.values()) == {"host"}
    tensors.layout.wake(retain=True)
    tensors.require_alive()
    for _ in range(CYCLES):
        tensors.layout.sleep("pool*")
        tensors.layout.wake(retain=True)
    tensors.require_alive()
    tensors.layout.sleep("pool*", to="drop")
    tensors.layout.wake()
    tensors.fill()
    tensors.require_alive()
    record_property("sleeps of pools", CYCLES + 2)


@pytest.mark.in_parts
@pytest.mark.parametrize("act", ["sleep", "drop", "wake"])
def test_whichever_call_fails_all_pools_have_done_it_or_none(
    act: str, machine: Machine, record_property: Callable[[str, object], None]
) -> None:
    """Each call fails once, above the driver; no tensor loses its bytes."""
    if machine.is_amd_before(7, 0):
        machine.slack = 8 * MIB
    tensors, faults = Tensors(machine), 0
    if not sleeps(tensors.layout):
        record_property("sleeps of pools refused", 1)
        tensors.close()
        return
    tensors.layout.wake()
    wait_until_freed()
    for number in count(1):
        if act == "wake":
            without_leaks(tensors, lambda: tensors.layout.sleep("pool*"))
        before, names = tensors.states, [pool.region for pool in tensors.layout.usage()]
        machine.runtime.arm_faults(f"*@{number}=hipErrorOutOfMemory")
        error = attempt(tensors, act)
        wait_until_freed()
        came = machine.runtime.faults_fired() > 0
        machine.disarm()
        faults += came
        if error:
            assert tensors.states == before, error
            assert "nothing was changed" in error or any(name in error for name in names), error
        is_dropped = "drop" in tensors.layout.asleep.values()
        without_leaks(tensors, tensors.layout.wake)
        wait_until_freed()
        if is_dropped:
            tensors.fill()
        tensors.require_bytes()
        if not came:
            break
    record_property("calls of pools that failed", faults)
    assert faults > 5
    without_leaks(tensors, tensors.close)


def without_leaks(tensors: Tensors, act: Callable[[], Any]) -> None:
    """Acts. What could not be released then, or behind an earlier act, is reported, and released here."""
    try:
        act()
    except LeakError as leaks:
        tensors.machine.disarm()
        tensors.machine.free_retired(leaks.undone.failures)


def attempt(tensors: Tensors, act: str) -> str:
    """The error of an act that was not done, in full; else empty."""
    try:
        if act == "wake":
            without_leaks(tensors, tensors.layout.wake)
        else:
            to = "drop" if act == "drop" else "host"
            without_leaks(tensors, lambda: tensors.layout.sleep("pool*", to=to))
    except ApplyError as error:
        assert error.exit_code == 4, error
        return str(error)
    return ""
