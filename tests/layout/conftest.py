"""What the tests of layouts share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import hipplan
from hipplan.layout.layout import Layout
from tests.conftest import Simulator


@pytest.fixture
def layout(sim: Simulator, request: pytest.FixtureRequest) -> Iterator[Layout]:
    """PLAN of the test's module, on the simulator. Fails the test that leaves something behind."""
    with hipplan.apply(request.module.PLAN, runtime="sim") as made:
        yield made
    assert sim.alive() == set()
