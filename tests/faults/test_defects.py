"""Defects of real releases (the simulator's quirks): hipplan lives with each of them, and loses nothing by it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan.errors import ApplyError
from hipplan.layout.layout import Layout
from hipplan.program.steps import Step
from tests.conftest import Simulator
from tests.descriptors import descriptors
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
    """become("7.2.53211", "create_on_current_device") makes the simulator that release with that defect."""
    with ExitStack() as stack:
        yield lambda version, *quirks: stack.enter_context(as_release(sim, version, *quirks))
        assert sim.alive() == set()


QUIRKS = [
    ("7.2.53211", "map_failure_hidden"),
    ("7.2.53211", "set_access_sums_in_heap_order"),
    ("7.0.51831", "set_access_sums_in_heap_order"),
    ("6.3.42133", "unmap_size_unchecked"),
    ("6.3.42133", "unmap_pieces_leaks"),
    ("6.3.42133", "address_free_forgets"),
    ("7.2.53211", "create_on_current_device"),
    ("7.2.53211", "peer_access_opens_mappings"),
    ("7.2.53211", "free_memory_with_reservation"),
    ("7.14.0", "export_repeats_first"),
    ("7.14.0", "import_needs_descriptor"),
    ("7.15.0", "host_access_to_imports_fails"),
]


@pytest.mark.parametrize(("version", "quirk"), QUIRKS, ids=lambda one: one)
def test_everything_works_with_each_defect(version: str, quirk: str, sim: Simulator, become: Become) -> None:
    become(version, quirk)
    with hipplan.apply(ONE, runtime="sim") as layout:
        layout.grow("hot", by="4MiB")
        layout.shrink("hot", by="2MiB")
        layout.remap("hot")
        layout.seal("hot")
        assert layout.drift() == []
        sleep_and_wake(layout, quirk, "hot", "model")
        assert not layout.update(OTHER, lose="*").empty
        assert layout.drift() == []
        layout.update(ONE, lose="*")
        assert layout.drift() == []
    with hipplan.apply(FULL, runtime="sim") as layout:
        layout.grow("full", by="3MiB")
        assert layout.drift() == []
        layout.shrink("full", by="3MiB")
    with hipplan.apply(UNEQUAL, runtime="sim") as layout:
        assert layout.drift() == []
        sleep_and_wake(layout, quirk, "r", to="drop")
    assert sim.alive() == set()


def sleep_and_wake(layout: Layout, quirk: str, *names: str, to: str = "host") -> None:
    """Refused where no memory would come free."""
    refused = pytest.raises(ApplyError, match="HP440") if quirk == "free_memory_with_reservation" else nullcontext()
    with refused:
        layout.sleep(names, to=to)
        assert set(layout.asleep.values()) == {to}
        assert layout.drift() == []
    layout.wake()
    assert layout.drift() == []


MINE: dict[str, Any] = {
    "hipplan": 1,
    "devices": {"gpu": {"count": 2}},
    "allocations": {"a": {"device": "gpu.0", "size": "2MiB", "shareable": "posix_fd"}},
}
THEIRS: dict[str, Any] = {
    "hipplan": 1,
    "devices": {"gpu": {"count": 2}},
    "allocations": {"a": {"bind": "a", "size": "2MiB", "shareable": "posix_fd"}},
    "reservations": {"r": {"mappings": [{"allocation": "a", "access": {"gpu.0": "rw", "gpu.1": "rw"}}]}},
}


def test_memory_is_shared_again_when_what_was_passed_on_is_closed(sim: Simulator, become: Become) -> None:
    """7.14.0 exports again, and changes the access of an import, by the first descriptor alone: it is kept."""
    become("7.14.0", "export_repeats_first", "import_needs_descriptor")
    open_files = []
    for _ in range(2):
        with hipplan.apply(MINE, runtime="sim") as layout:
            os.close(layout.export("a"))
            given = layout.export("a")
            with hipplan.apply(THEIRS, runtime="sim", bind={"a": given}) as other:
                os.close(given)
                other.seal("r")
                other.unseal("r")
                assert other.drift() == []
            os.close(layout.export("a"))
        open_files.append(descriptors())
    assert open_files[0] == open_files[1]
    assert sim.ledger()["exported"] == []


def memory_files() -> int:
    """Open descriptors of the simulator's memory."""
    return sum("memfd:hipsim" in str(path.resolve()) for path in Path("/proc/self/fd").iterdir())


def test_a_forked_child_keeps_no_memory_alive(sim: Simulator) -> None:
    """It has one descriptor less than its parent: that of the driver's memory file is the simulator's."""
    with hipplan.apply(MINE, runtime="sim") as layout:
        os.close(layout.export("a"))
        before = memory_files()
        child = os.fork()
        if child == 0:
            os._exit(memory_files())
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == before - 1


def test_the_host_has_no_access_to_imports_on_715_and_nothing_is_left(sim: Simulator, become: Become) -> None:
    become("7.15.0", "host_access_to_imports_fails")
    mappings = [{"allocation": "a", "access": {"gpu.0": "rw", "host": "r"}}]
    plan = {**THEIRS, "reservations": {"r": {"mappings": mappings}}}
    with hipplan.apply(MINE, runtime="sim") as layout:
        given, before = layout.export("a"), sim.alive()
        with pytest.raises(ApplyError) as caught:
            hipplan.apply(plan, runtime="sim", bind={"a": given})
        os.close(given)
        assert (caught.value.call, caught.value.exit_code) == ("hipMemSetAccess", 4)
        assert sim.alive() == before


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
    """The memory is freed outside hipplan before it is mapped: up to 7.2 hipMemMap returns success."""
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
        assert caught.value.leaks == ("a",)  # it was freed outside hipplan; neither r nor r[0]
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
