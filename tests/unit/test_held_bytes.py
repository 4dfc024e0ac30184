"""Programs that save and restore a holder's bytes, the files of a backup, and the host memory available for it."""

from __future__ import annotations

import contextlib
import os
import threading

import pytest

import hipplan
from hipplan.errors import ApplyError, HeldError, MachineError
from hipplan.holders.generations import SavedBytes, file_sizes
from hipplan.kinds.allocation.live import CreateAllocation
from hipplan.kinds.mapping.live import Map, SetAccess
from hipplan.kinds.reservation.live import Reserve
from hipplan.machines.profiles import load_machine
from hipplan.program import held, held_bytes
from hipplan.program.content_steps import LoadFiles, Save
from hipplan.program.program import Program
from tests.descriptors import descriptors

PLAN = {
    "hipplan": 1,
    "devices": {"gpu": {"count": 2}},
    "allocations": {"a": {"device": "gpu.0", "size": "4MiB"}, "b": {"device": "gpu.1", "size": "2MiB"}},
    "reservations": {"r": {"size": "2MiB", "mappings": [{"allocation": "b", "access": {"gpu.0": "r"}}]}},
}


def kept() -> Program:
    """A held program."""
    holdable = held.holdable(hipplan.compile(PLAN, "sim-2"))
    return held.held_program(held.with_addresses(holdable), {"r": 0x680000000000})


@pytest.mark.parametrize(("runtime", "count"), [("sim", 300), ("cuda", 450)])
def test_a_holder_is_refused_whose_memory_takes_more_descriptors_than_a_process_has(runtime: str, count: int) -> None:
    there = load_machine("sim-2")
    limits = there.limits.model_copy(update={"open_files": 964})
    machine = there.model_copy(update={"limits": limits, "runtime": runtime})
    for more, refused in ((0, False), (1, True)):
        plan = {"hipplan": 1, "allocations": {"m": {"device": "gpu.0", "size": "2MiB", "count": count + more}}}
        program = hipplan.compile(plan | {"devices": {"gpu": {"count": 2}}}, machine)
        with pytest.raises(MachineError) if refused else contextlib.nullcontext() as error:
            held.holdable(program)
        assert error is None or error.value.diagnostics[0].code == "HP308"


def test_a_plan_has_the_addresses_in_a_holder_that_it_always_had() -> None:
    """So a process that attaches to a holder and to its replacement of another version needs no other addresses."""
    regions = {
        "a": {"size": "2MiB"},
        "b": {"size": "1GiB"},
        "c": {"size": "1026MiB"},
        "d": {"size": "2MiB", "alignment": "2GiB"},
    }
    program = held.with_addresses(
        held.holdable(hipplan.compile({"hipplan": 1, "name": "pinned", "regions": regions}, "sim-2"))
    )
    assert {step.name: step.address for step in program.steps if isinstance(step, Reserve)} == {
        "a": 0x681800000000, "b": 0x681880000000, "c": 0x681900000000, "d": 0x681A00000000,
    }  # fmt: skip


def test_each_allocation_is_mapped_completely_and_writable_by_its_own_device() -> None:
    saving = held_bytes.saving_program(kept(), load_machine("sim-2"), [(7, 5 << 20), (8, 1 << 20)])
    assert held.imported_allocations(saving) == ["a", "b"]
    mapped = {step.allocation: step.size for step in saving.steps if isinstance(step, Map)}
    assert mapped == {"a": 4 << 20, "b": 2 << 20}
    assert [step.rights for step in saving.steps if isinstance(step, SetAccess)] == [((0, "rw"),), ((1, "rw"),)]
    (save,) = saving.contents
    assert isinstance(save, Save)
    assert [(part.object, part.offset, part.size) for part in save.parts] == [
        ("#bytes.a", 0, 4 << 20),
        ("#bytes.b", 0, 1 << 20),
        ("#bytes.b", 1 << 20, 1 << 20),
    ]
    assert save.places == ((7, 0), (7, 4 << 20), (8, 0))


def test_bytes_are_restored_from_the_places_where_they_were_saved() -> None:
    restoring = held_bytes.restoring_program(kept(), load_machine("sim-2"), [("seven", 5 << 20), ("eight", 1 << 20)])
    made = {step.name: step.shareable for step in restoring.steps if isinstance(step, CreateAllocation)}
    assert made == {"a": "posix_fd", "b": "posix_fd"}
    (load,) = restoring.contents
    assert isinstance(load, LoadFiles)
    assert [(taken.wanted.name, taken.wanted.file, taken.wanted.at) for taken in load.loads] == [
        ("a", "seven", 0),
        ("b", "seven", 4 << 20),
        ("b", "eight", 0),
    ]
    assert load.files == ("seven", "eight")


@pytest.mark.parametrize(("size", "count"), [(1, 1), (64 << 20, 1), (65 << 20, 2), (1 << 30, 16), ((1 << 36) + 1, 16)])
def test_large_backups_have_sixteen_files(size: int, count: int) -> None:
    sizes = file_sizes(size)
    assert (len(sizes), sum(sizes)) == (count, size)
    assert all(size % 4096 == 0 for size in sizes[:-1])


def test_a_process_that_does_not_see_a_device_cannot_move_its_bytes() -> None:
    machine = load_machine("sim-2")
    with pytest.raises(HeldError) as caught:
        held_bytes.saving_program(
            kept(), machine.model_copy(update={"devices": machine.devices[:1], "links": []}), [(7, 6 << 20)]
        )
    assert caught.value.diagnostics[0].code == "HP454"


def test_wake_is_refused_if_a_device_lacks_memory() -> None:
    machine, program = load_machine("sim-2"), kept()
    memory = machine.devices[1].memory
    assert memory is not None
    known = machine.devices[1].model_copy(update={"uuid": "GPU-1", "in_use": 1 << 20})
    machine = machine.model_copy(update={"devices": [machine.devices[0], known]})
    held_bytes.require_free_memory(program, machine, {"1": memory - (2 << 20)})
    with pytest.raises(ApplyError) as caught:
        held_bytes.require_free_memory(program, machine, {"1": memory - (1 << 20)})
    (error,) = caught.value.diagnostics
    assert (error.code, error.summary) == ("HP442", "gpu.1 lacks 1MiB to wake: 2MiB are needed")


def test_wake_may_take_all_memory_of_a_device() -> None:
    machine, program = load_machine("sim-2"), kept()
    full = machine.devices[0].model_copy(update={"memory": 4 << 20, "in_use": 0})
    held_bytes.require_free_memory(program, machine.model_copy(update={"devices": [full, machine.devices[1]]}), {})


@pytest.mark.parametrize("threads", [True, False])
def test_a_backup_is_freed_with_and_without_threads(threads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_more(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    if not threads:
        monkeypatch.setattr(threading.Thread, "start", no_more)
    before, backup = descriptors(), SavedBytes("host", 1 << 30)
    assert descriptors() == before + 16
    backup.close()
    assert descriptors() == before


def test_a_backup_is_freed_behind_the_caller_and_close_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    backup, before = SavedBytes("host", 1 << 30), descriptors()
    goes_on = threading.Event()
    close = os.close

    def close_later(descriptor: int) -> None:
        assert goes_on.wait(60)
        close(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "close", close_later)
        backup.begin_to_free()
    assert descriptors() == before
    threading.Timer(0.01, goes_on.set).start()
    backup.close()
    assert descriptors() == before - 16
    backup.close()
