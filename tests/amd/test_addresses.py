"""Wanted addresses on AMD's library: it takes one at once or never, and the simulator does the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import hipplan
from hipplan.errors import ApplyError
from hipplan.machines.runtimes import choose
from hipplan.machines.simulator import library_path
from tests.amd import hints
from tests.amd.hints import FREE, MIB

ANSWERS = {
    "free": True,
    "freed a moment ago": True,
    "a free page": True,
    "free, 16 GiB": True,
    "between two pages": False,
    "a range": False,
    "the end of a range": False,
    "before a range, and its beginning": False,
    "behind a range": True,
    "before a range": True,
    "the program's memory": False,
    "the program's addresses without memory": False,
    "hipMalloc's memory": False,
    "beyond all addresses": False,
}


def answers(library: str) -> dict[str, bool]:
    command = [sys.executable, "-m", "tests.amd.hints", library]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    found: dict[str, bool] = json.loads(done.stdout.splitlines()[0])
    return found


def test_the_library_takes_addresses_that_are_free_in_the_process(release: str) -> None:
    assert answers(os.environ["HIPPLAN_RUNTIME"]) == ANSWERS | {"the library's own": False}


def test_the_simulator_takes_the_same_addresses(release: str) -> None:
    assert answers(str(library_path())) == ANSWERS


def plan(address: int, size: str = "2MiB") -> dict[str, object]:
    range_ = {"size": size, "address": address, "address_policy": "exact"}
    return {"hipplan": 1, "name": "wanted", "reservations": {"r": range_}}


def test_a_layout_has_its_address_again_and_again(release: str) -> None:
    for size in ("2MiB", "64MiB", "16GiB"):
        for _ in range(3):
            with hipplan.apply(plan(FREE, size), answer=False) as layout:
                assert layout["r"].address == FREE


def refused(address: int, trace: Path) -> tuple[str, int]:
    """The error of an apply that cannot have its address, and how often the library was asked."""
    runtime = choose().runtime
    runtime.trace_to(str(trace))
    with pytest.raises(ApplyError) as caught:
        hipplan.apply(plan(address), answer=False)
    runtime.trace_to("")
    return str(caught.value), trace.read_text().count('"hipMemAddressReserve"')


def test_an_address_that_the_library_refuses_is_not_tried_for_long(release: str, tmp_path: Path) -> None:
    """Each try is a mapping of the kernel, of which a process has 65,530 at most."""
    hints.map_at(FREE + 1024 * MIB, 0)
    text, tries = refused(FREE + 1024 * MIB, tmp_path / "trace")
    assert "HP404" in text
    assert f"the driver had no other free addresses, and placed it elsewhere {tries} times" in text
    assert tries < 50


def test_an_address_of_a_layout_is_not_tried_again(release: str, tmp_path: Path) -> None:
    with hipplan.apply(plan(FREE, "4MiB"), answer=False):
        text, tries = refused(FREE + 2 * MIB, tmp_path / "trace")
    assert "the layout 'wanted' has 'r' there" in text
    assert tries == 1


def test_an_address_of_the_program_is_not_tried_again(release: str, tmp_path: Path) -> None:
    code = next(line for line in Path("/proc/self/maps").read_text().splitlines() if "r-xp" in line and "libc" in line)
    text, tries = refused(int(code.split("-")[0], 16) // (2 * MIB) * 2 * MIB, tmp_path / "trace")
    assert "the process has " in text
    assert tries == 1
