"""Defects of real releases (the simulator's quirks): hipplan lives with each of them, and loses nothing by it."""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import hipplan
from hipplan import _core
from hipplan.errors import ApplyError
from hipplan.profiles import load_machine, sim_profile
from hipplan.steps import Step
from tests.conftest import Simulator
from tests.faults.harness import as_release
from tests.faults.test_changes import FULL, ONE, OTHER

Become = Callable[..., None]

UNEQUAL: dict[str, Any] = {
    "hipplan": 1,
    "devices": {"gpu": {"count": 2}},
    "allocations": {
        "large": {"device": "gpu.0", "size": "4MiB"},
        "small": {"device": "gpu.0", "size": "2MiB"},
        "more": {"device": "gpu.1", "size": "2MiB"},
    },
    "reservations": {
        "r": {
            "size": "64MiB",
            "mappings": [
                {"allocation": "large", "access": {"gpu.0": "rw"}},
                {"allocation": "small", "access": {"gpu.0": "r", "gpu.1": "r"}},
                {"allocation": "more", "access": {"gpu.1": "rw"}},
            ],
        }
    },
}


@pytest.fixture
def become(sim: Simulator) -> Iterator[Become]:
    """become("7.2.53211", "create_takes_descriptor") makes the simulator that release with that defect."""
    with ExitStack() as stack:
        yield lambda version, *quirks: stack.enter_context(as_release(sim, version, *quirks))
        assert sim.alive() == set()


QUIRKS = [
    ("7.2.53211", "map_failure_hidden"),
    ("7.2.53211", "set_access_sums_from_start"),
    ("7.0.51831", "set_access_sums_from_start"),
    ("6.3.42133", "unmap_size_unchecked"),
    ("6.3.42133", "unmap_pieces_leaks"),
    ("6.3.42133", "address_free_forgets"),
    ("7.2.53211", "create_on_current_device"),
    ("7.2.53211", "create_takes_descriptor"),
    ("7.2.53211", "free_memory_with_reservation"),
    ("7.2.53211", "read_only_not_enforced"),
]


@pytest.mark.parametrize(("version", "quirk"), QUIRKS, ids=lambda one: one)
def test_everything_works_with_each_defect(version: str, quirk: str, sim: Simulator, become: Become) -> None:
    become(version, quirk)
    one, other = ONE, OTHER
    if quirk == "set_access_sums_from_start":  # a piece behind a hole that is unlike the first cannot be had there
        one = ONE.replace("at: 32MiB", "at: 4MiB")
        other = one.replace("size: 4MiB, chunk", "size: 8MiB, chunk")
    with hipplan.apply(one, runtime="sim") as layout:
        layout.grow("hot", by="4MiB")
        layout.shrink("hot", by="2MiB")
        layout.remap("hot")
        layout.seal("hot")
        assert layout.drift() == []
        assert not layout.update(other).empty
        assert layout.drift() == []
        layout.update(one)
        assert layout.drift() == []
    with hipplan.apply(FULL, runtime="sim") as layout:
        layout.grow("full", by="3MiB")
        assert layout.drift() == []
        layout.shrink("full", by="3MiB")
    with hipplan.apply(UNEQUAL, runtime="sim") as layout:
        assert layout.drift() == []
    assert sim.alive() == set()


@pytest.mark.parametrize("version", ["6.3.42133", "7.15.0"])
def test_a_release_without_the_defect_is_not_asked_twice(version: str, sim: Simulator, become: Become) -> None:
    become(version)
    sim.runtime.arm_faults("hipMemSetAccess@3=hipErrorInvalidValue")
    with pytest.raises(ApplyError) as caught:
        hipplan.apply(UNEQUAL, runtime="sim")
    assert caught.value.call == "hipMemSetAccess"
    assert caught.value.leaks == ()
    assert sim.alive() == set()


def test_a_map_that_failed_in_silence_is_nothing_to_give_back(sim: Simulator, become: Become) -> None:
    """Somebody gives our memory away before it is mapped: up to 7.2 hipMemMap says that all is well."""
    become("7.2.53211", "map_failure_hidden")
    hip = ctypes.CDLL(sim.runtime.path)

    def sabotage(number: int, step: Step) -> None:
        if step.call == "hipMemMap":
            handle = int(sim.ledger()["allocations"][0]["handle"], 16)
            assert hip.hipMemRelease(ctypes.c_void_p(handle)) == 0

    plan: dict[str, Any] = {
        "hipplan": 1,
        "allocations": {"a": {"size": "2MiB"}},
        "reservations": {"r": {"mappings": [{"allocation": "a", "access": {"gpu.0": "rw"}}]}},
    }
    for access, call in (({"gpu.0": "rw"}, "hipMemSetAccess"), ({}, "hipMemGetAllocationPropertiesFromHandle")):
        plan["reservations"]["r"]["mappings"][0]["access"] = access
        with pytest.raises(ApplyError) as caught:
            hipplan.apply(plan, runtime="sim", on_step=sabotage)
        assert caught.value.call == call
        assert caught.value.leaks == ("a",)  # which somebody else gave back; neither r nor r[0]
        assert sim.alive() == set()


def test_memory_may_come_back_with_its_range_alone(sim: Simulator, become: Become) -> None:
    """ROCm 6021: neither a shrink nor the roll back of a grow makes room, and closing gives all of it back."""
    become("7.2.53211", "free_memory_with_reservation")
    region = {"device": "gpu.0", "chunk": "2MiB", "size": "8MiB", "reserve": "64MiB", "access": {"gpu.0": "rw"}}
    free = sim.runtime.memory_info(0)[0]
    with hipplan.apply({"hipplan": 1, "regions": {"r": region}, "devices": {"gpu": {"count": 2}}}, runtime="sim") as r:
        r.shrink("r", by="4MiB")
        assert sim.runtime.memory_info(0)[0] == free - 8 * 2**20
        sim.runtime.arm_faults("hipMemSetAccess@2=hipErrorUnknown")
        with pytest.raises(ApplyError) as caught:
            r.grow("r", by="4MiB")
        assert (caught.value.exit_code, r.drift()) == (4, [])
        assert sim.runtime.memory_info(0)[0] < free - 8 * 2**20
    assert sim.runtime.memory_info(0)[0] == free


def rights_lost(error: ApplyError) -> set[int]:
    """The mappings whose rights the error says are lost, by address."""
    lines = [line for line in error.not_as_it_was if "could not be set again: hipErrorUnknown" in line]
    assert str(error).count("not as it was: the rights of a mapping at 0x") == len(lines)
    return {int(line.split(" mapping at ")[1].split()[0], 16) for line in lines}


def test_rights_that_the_way_around_a_defect_could_not_give_back_are_told(sim: Simulator, become: Become) -> None:
    """Rights on a piece behind others are given from the range's first on, and the others get theirs again."""
    become("7.0.51831", "set_access_sums_from_start")
    lost: set[int] = set()
    with hipplan.apply(UNEQUAL, runtime="sim") as layout:
        for nth in range(1, 12):
            sim.runtime.arm_faults(f"hipMemSetAccess@{nth}+=hipErrorUnknown")
            with pytest.raises(ApplyError) as caught:
                layout.seal("r")
            sim.runtime.arm_faults("")
            if lost := rights_lost(caught.value):
                break
            layout.unseal("r")

        assert lost == {layout["r"].address, layout["r"].address + 4 * 2**20}
        assert (caught.value.exit_code, caught.value.leaks) == (5, ())
        assert layout.drift() != []


def test_of_what_is_gone_no_rights_are_lost(sim: Simulator, become: Become) -> None:
    """A roll back takes the new pieces away again: only the one that was there before is not as it was."""
    become("7.0.51831", "set_access_sums_from_start")
    first = copy.deepcopy(UNEQUAL)
    first["allocations"] = {"large": first["allocations"]["large"]}
    first["reservations"]["r"]["mappings"] = first["reservations"]["r"]["mappings"][:1]
    told = []
    for nth in range(1, 12):
        with hipplan.apply(first, runtime="sim") as layout:
            sim.runtime.arm_faults(f"hipMemSetAccess@{nth}+=hipErrorUnknown")
            try:
                layout.update(UNEQUAL)
            except ApplyError as error:
                lost = rights_lost(error)
                assert lost <= {layout["r"].address}
                assert error.exit_code == (5 if lost else 4)
                assert bool(lost) == bool(layout.drift())
                told.append(bool(lost))
            sim.runtime.arm_faults("")
    assert {True, False} == set(told)


def test_a_piece_behind_another_gives_nobody_a_right_to_the_first(sim: Simulator, become: Become) -> None:
    """gpu.1 may read the new piece, and was never named for the one that stands."""
    become("7.0.51831", "set_access_sums_from_start")
    first, second = copy.deepcopy(UNEQUAL), copy.deepcopy(UNEQUAL)
    for plan, count in ((first, 1), (second, 2)):
        plan["allocations"] = dict(list(plan["allocations"].items())[:count])
        plan["reservations"]["r"]["mappings"] = plan["reservations"]["r"]["mappings"][:count]
    with hipplan.apply(first, runtime="sim") as layout:
        layout.update(second)
        assert layout.drift() == []


def test_a_piece_that_is_refused_changes_nothing_for_those_before_it(sim: Simulator) -> None:
    """The refused call names the whole range, and HIP keeps what it gave before the device that it refuses."""
    usual = sim_profile(load_machine("sim-2"))
    unlinked = "device.0.name=a\ndevice.1.name=b\n"
    sim.runtime.configure(f"hip_version=7.0.0\nquirk.set_access_sums_from_start=1\n{unlinked}")
    journal, properties = _core.Journal(sim.runtime, [0, 1]), _core.AllocationProperties(0)
    try:
        memory = [journal.create_allocation("a", (n + 1) << 21, properties) for n in range(2)]
        place = journal.reserve("r", 3 << 21, 0, 0)
        first = journal.map("first", place, 0, memory[0], 1 << 21)
        journal.set_access(first, [(1, 0, 1)])
        second = journal.map("second", place, 1 << 21, memory[1], 2 << 21)
        with pytest.raises(_core.HipError):
            journal.set_access(second, [(1, 0, 3), (1, 1, 3)])  # no link to device 1
        assert sim.runtime.access(0, journal.address(first)) == 1
    finally:
        _core.Undoing(journal).run()
        sim.runtime.configure(usual)


def test_an_apply_that_is_rolled_back_loses_no_rights(sim: Simulator, become: Become) -> None:
    become("7.0.51831", "set_access_sums_from_start")
    for nth in range(1, 4):
        sim.runtime.arm_faults(f"hipMemSetAccess@{nth}+=hipErrorUnknown")
        with pytest.raises(ApplyError) as caught:
            hipplan.apply(UNEQUAL, runtime="sim")
        assert (caught.value.exit_code, caught.value.not_as_it_was) == (4, ())
