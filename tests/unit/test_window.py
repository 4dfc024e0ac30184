"""Addresses that every driver takes: within a step of 32 MiB, or at its beginning."""

from __future__ import annotations

import pytest

from hipplan.program.window import STEP, stride_for, to_next_step

MIB = 2**20
BASE = 0x6ABB_0000_0000


@pytest.mark.parametrize(
    ("size", "stride"), [(2, 2), (4, 4), (6, 8), (12, 16), (32, 32), (34, 64), (48, 64), (1024, 1024)]
)
def test_no_range_passes_a_multiple_of_32_mib_unless_it_begins_at_one(size: int, stride: int) -> None:
    assert stride_for(size * MIB) == stride * MIB
    for number in range(100):
        begin = BASE + number * stride * MIB
        assert begin % STEP == 0 or begin // STEP == (begin + size * MIB - 1) // STEP


@pytest.mark.parametrize(("address", "left"), [(0, 32), (2, 30), (31, 1), (32, 32)])
def test_to_next_step(address: int, left: int) -> None:
    assert to_next_step(BASE + address * MIB) == left * MIB
    assert (BASE + address * MIB + left * MIB) % STEP == 0
