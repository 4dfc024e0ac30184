"""The bytes of a pool's blocks, whatever is freed beside them: freed blocks are poisoned, freed chunks are unmapped."""

from __future__ import annotations

import random
from typing import Any

import pytest

import hipplan
from hipplan import _core
from tests.conftest import Simulator
from tests.layout.native_pool import Allocator

KIB, MIB = 2**10, 2**20
PLAN: dict[str, Any] = {
    "hipplan": 1,
    "regions": {"weights": {"size": 0, "reserve": "32MiB", "chunk": "2MiB", "torch": {"tag": "weights"}}},
}


def test_no_block_has_bytes_of_another(sim: Simulator) -> None:
    numbers = random.Random(43)
    with hipplan.apply(PLAN, runtime="sim") as layout:
        allocator = Allocator(layout, "weights", sim)
        live: dict[int, tuple[int, int]] = {}
        used_again: set[int] = set()
        given: set[int] = set()
        for number in range(400):
            if live and numbers.random() < 0.5:
                address = numbers.choice([*live])
                require(sim, address, *live.pop(address))
                allocator.free(address)
            elif (address := allocator.malloc(size := numbers.randrange(1, 800 * KIB)) or 0) != 0:
                used_again |= {address} & given
                given.add(address)
                live[address] = (size, value := number % 100 + 1)
                sim.fill(address, value, size)
            if number % 40 == 39:
                layout.trim("weights")
            if number % 80 == 79:
                layout.sleep("weights")
                layout.wake("weights")
            if number % 20 == 19:
                for address, (size, value) in live.items():
                    require(sim, address, size, value)
        assert len(used_again) > 20
        for address in live:
            allocator.free(address)


def require(sim: Simulator, address: int, size: int, value: int) -> None:
    assert sim.read(address, size) == bytes([value]) * size


def test_a_freed_chunk_is_unmapped(sim: Simulator) -> None:
    with hipplan.apply(PLAN, runtime="sim") as layout:
        allocator = Allocator(layout, "weights", sim)
        kept, freed = allocator.block(2 * MIB), allocator.block(2 * MIB)
        sim.fill(kept, 7, 2 * MIB)
        allocator.free(freed)
        layout.trim()
        with pytest.raises(_core.HipError):
            sim.read(freed, 1)
        require(sim, kept, 2 * MIB, 7)
        layout.sleep("weights")
        with pytest.raises(_core.HipError):
            sim.read(kept, 1)
        layout.wake()
        require(sim, kept, 2 * MIB, 7)
        allocator.free(kept)
