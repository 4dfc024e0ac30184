"""What hipplan asks of its own process before an apply."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from hipplan.language.loader import load
from hipplan.layout.prepare import prepare
from hipplan.machines.runtimes import choose
from tests.conftest import Simulator

SPARE = 256
"""Descriptors for all else that a process opens."""


@pytest.fixture
def limits() -> Iterator[tuple[int, int]]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] < 2000:
        pytest.skip("the hard limit of open files is too low")
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def of_allocations(count: int) -> str:
    return f"hipplan: 1\nallocations: {{a: {{device: gpu, size: 4KiB, count: {count}}}}}\ndevices: {{gpu: {{}}}}\n"


def test_the_limit_of_open_files_is_raised_as_far_as_an_apply_needs(sim: Simulator, limits: tuple[int, int]) -> None:
    """AMD's runtime takes a descriptor for each allocation."""
    hard = limits[1]
    chosen = choose("sim")
    for soft, count, wanted in ((1024, 1000, 1000 + SPARE), (1024, 700, 1024), (1500, 10, 1500)):
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        prepare(load(of_allocations(count)), chosen, None)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (wanted, hard)
