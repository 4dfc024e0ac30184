"""A short soak; `make reliability` runs the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Simulator
from tests.faults.soak import held, soak


@pytest.mark.in_turns
def test_many_applies_and_failures_leave_nothing(sim: Simulator, tmp_path: Path) -> None:
    before, after, failed = soak(sim, tmp_path, cycles=300, failed=100, warm_up=500)

    assert failed >= 100
    assert after.alive == 0
    assert held(before, after) == []
