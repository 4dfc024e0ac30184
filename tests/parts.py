"""A plugin for what is long: one run takes an eighth of the cases of each test that is marked `in_parts`, an eighth of
all tests that are marked `in_turns`, and one of the hardware tests.

`make test` takes the first eighth, or the one that HIPPLAN_PART names, and so does `make amd-library QUICK=1`; CI takes
the one that the hash of the commit chooses. All cases are run by `make reliability`, by `make amd-library`, on a GPU,
and where their names are given.
"""

from __future__ import annotations

import os
import zlib
from collections import defaultdict
from collections.abc import Sequence
from typing import TypeVar

import pytest

from tests.conftest import WHOLE

Case = TypeVar("Case")

PARTS = 8
SHARES = 4
TURNS = "in_turns"
HARDWARE = "tests/hardware/"
"""What GPUs are tested with. Without one, other folders test the same in more ways: it is one sweep then."""
PART = int(os.environ.get("HIPPLAN_PART", "0"))
ALL = WHOLE or (os.environ.get("HIPPLAN_RUNTIME", "sim") != "sim" and "HIPPLAN_QUICK" not in os.environ)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "in_parts: one run takes an eighth of its cases")
    config.addinivalue_line("markers", f"{TURNS}: one run takes an eighth of all tests with this mark")


@pytest.hookimpl(tryfirst=True)  # which cases are taken must not depend on what others leave out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if ALL:
        return
    cases: dict[str, list[str]] = defaultdict(list)
    for item in items:
        if (sweep := _sweep_of(item)) and item.nodeid not in config.args:
            cases[sweep].append(item.nodeid)
    others = {case for of_sweep in cases.values() for case in {*of_sweep} - {*taken(of_sweep, PART)}}
    if others:
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in others])
        items[:] = [item for item in items if item.nodeid not in others]


def _sweep_of(item: pytest.Item) -> str:
    """What has its cases taken in eighths, and has this test as a case; "" for a test that each run takes."""
    if item.nodeid.startswith(HARDWARE):
        return HARDWARE
    if item.get_closest_marker("in_parts"):
        return item.nodeid.partition("[")[0]
    return TURNS if item.get_closest_marker(TURNS) else ""


def share(cases: Sequence[Case]) -> Sequence[Case]:
    """The cases of a sweep within a test that a run takes, in their order: a fourth, because such a test also asserts
    what comes of them together."""
    return cases if ALL else sorted(_mixed(cases)[PART % SHARES :: SHARES], key=cases.index)


def taken(cases: list[str], part: int) -> list[str]:
    """The cases of a test that a part takes: one at least."""
    parts = min(PARTS, len(cases))
    return _mixed(cases)[part % parts :: parts]


def _mixed(cases: Sequence[Case]) -> list[Case]:
    """The cases in another order, the same each time: neighbours mostly end alike, or are skipped for one reason."""
    return sorted(cases, key=lambda case: zlib.crc32(str(case).encode()))
