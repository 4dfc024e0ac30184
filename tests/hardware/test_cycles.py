"""Many applies, good and failed: free memory, descriptors and resident memory are equal at the end.

HIPPLAN_CYCLES and HIPPLAN_FAILED say how many (default 200 and 100; 10,000 and 1,000 make an endurance run).
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hipplan.errors import ApplyError
from hipplan.layout.run import run
from hipplan.program.program import Program
from tests.conftest import PLANS
from tests.faults.harness import same_calls_each_time
from tests.hardware.machine import MIB, Held, Machine, resident
from tests.hardware.test_faults import counted
from tests.hardware.test_plans import program_of

CYCLES = int(os.environ.get("HIPPLAN_CYCLES", "200"))
FAILED = int(os.environ.get("HIPPLAN_FAILED", "100"))
SLACK = 4 * MIB
"""Resident memory wavers by the allocator's pages; a leak of 1 KiB a cycle would be far more in 10,000."""


@pytest.fixture
def program(machine: Machine) -> Program:
    """Of quickstart, which needs two devices, or of a plan for one."""
    name = "quickstart" if machine.count > 1 else "double-buffering"
    return program_of(next(path for path in PLANS if path.stem == name), machine)


def same_after(machine: Machine, times: int, once: Callable[[int], None]) -> None:
    for number in range(min(50, times)):  # caches of Python's and the driver's
        once(number)
    gc.collect()
    before, pages = Held.by(machine), resident()
    for number in range(times):
        once(number)
    gc.collect()
    after, grown = Held.by(machine), resident() - pages
    print(f"{times} times: free {before.free} -> {after.free}, descriptors {len(before.files)} -> "
          f"{len(after.files)}, resident {pages} {grown:+d}")  # fmt: skip
    assert after.same(before, machine.slack)
    assert grown < SLACK


def test_good_cycles(machine: Machine, program: Program) -> None:
    same_after(machine, CYCLES, lambda number: run(program, machine.runtime).close() and None)


@same_calls_each_time()
def test_failed_applies(machine: Machine, program: Program) -> None:
    """Every call of the plan has its turn, again and again."""
    calls, _ = counted(machine, program)

    def fail(number: int) -> None:
        machine.runtime.arm_faults(f"*@{number % calls + 1}=hipErrorOutOfMemory")
        try:
            run(program, machine.runtime).close()
        except ApplyError as error:
            assert not error.leaks
        machine.disarm()

    same_after(machine, FAILED, fail)


def test_good_cycles_of_a_plan_seen_from_outside(machine: Machine, program: Program) -> None:
    """No mapping of the process is left either: a reserved range that stays costs no memory and would not show."""
    for _ in range(20):
        run(program, machine.runtime).close()
    before = len(Path("/proc/self/maps").read_text().splitlines())
    for _ in range(min(CYCLES, 200)):
        run(program, machine.runtime).close()
    after = len(Path("/proc/self/maps").read_text().splitlines())
    assert after - before < 20
