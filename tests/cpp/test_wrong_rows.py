"""Rows, slots and numbers that no program has: errors, never a crash or a leak."""

from __future__ import annotations

from typing import Any

import pytest

from hipplan import _core
from tests.conftest import Simulator
from tests.cpp import some_rows as row
from tests.cpp.some_rows import (
    MAPPED,
    MIB,
    SOME_OF_EVERYTHING,
    advance,
    close,
    free_retired,
    holding,
    nothing,
    snapshot_of,
)

SAMPLES = [
    *SOME_OF_EVERYTHING,
    row.imported(0),
    row.unmap(8, 1),
    row.advise(6, ("read_mostly", 0), ("unset_read_mostly", 0)),
    row.prefetch(6, 3),
    row.attach(6, 3),
    row.await_stream(3),
    row.copy(8, 8),
]
"""A row of each operation; what they name is of SOME_OF_EVERYTHING."""


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample[0])
def test_a_row_that_is_too_short_too_long_or_has_other_fields_is_refused(sample: row.Row) -> None:
    _core.Rows([sample])
    for wrong in (*(sample[:length] for length in range(len(sample))), (*sample, 0)):
        with pytest.raises(ValueError, match="a row"):
            _core.Rows([wrong])
    for place in range(len(sample)):
        if isinstance(sample[place], bool):
            continue  # True, or not
        for value in (object(), 1.5, 2**70, -(2**70), "\ud800" if isinstance(sample[place], str) else "text"):
            with pytest.raises((ValueError, TypeError, OverflowError)):
                _core.Rows([(*sample[:place], value, *sample[place + 1 :])])


@pytest.mark.parametrize("wrong", [2**32, 2**31, -(2**40)])
def test_a_number_that_is_too_large_is_not_another_number(wrong: int) -> None:
    for sample in (
        row.stream(wrong),
        row.stream(0, device=wrong),
        row.mapped(0, wrong, 1),
        row.rights(0, ((wrong, "r"),)),
    ):
        with pytest.raises((ValueError, OverflowError)):
            _core.Rows([sample])


def test_words_that_hip_has_no_number_for_are_refused() -> None:
    samples: list[row.Row] = [
        ("create allocation", "memory", 0, MIB, 0, "PINNED", "device", "none", False),
        ("create allocation", "memory", 0, MIB, 0, "pinned", "here", "none", False),
        ("create allocation", "memory", 0, MIB, 0, "pinned", "device", 1, False),
        ("create pinned buffer", "pinned", 0, 0, MIB, ("mapped", "fast")),
        ("create pinned buffer", "pinned", 0, 0, MIB, "mapped"),
        ("create managed buffer", "managed", 0, 0, MIB, "someone"),
        row.advise(0, ("ask", 0)),
        row.rights(0, ((0, "w"),)),
    ]
    for sample in samples:
        with pytest.raises((ValueError, TypeError), match=r"needs one of|a row|bad argument"):
            _core.Rows([sample])
    with pytest.raises(ValueError, match="no words for"):
        _core.word_of("right", 1)


def test_rows_are_a_sequence_of_tuples_with_a_known_operation() -> None:
    for wrong in (["text"], [["create stream", "s", 0, 0]], [None], [("no such", "name", 0)], [()], [(1, 2, 3)]):
        with pytest.raises((ValueError, TypeError)):
            _core.Rows(wrong)  # type: ignore[arg-type]
    for wrong_rights in ([(0, "rw")], ((0, "x"),), ((0,),), (0,), None, ((0, "rw", 1),)):
        with pytest.raises((ValueError, TypeError)):
            _core.Rows([row.rights(0, wrong_rights)])
    assert len(_core.Rows([])) == 0
    assert len(_core.Rows(SAMPLES)) == len(SAMPLES)


def refused(holdings: _core.Holdings, rows: list[row.Row], error: Any, **more: Any) -> None:
    """The rows raise this before or when they are run, and leave nothing behind."""
    change = None
    with pytest.raises(error):
        change = _core.Change(holdings, _core.Rows(rows), **more)
        advance(change, len(rows))
    if change is not None:
        assert change.failed
        change.roll_back()
        free_retired(holdings)
    assert not holdings.changing


def test_rows_that_name_what_is_not_there_or_is_of_another_kind_are_refused(sim: Simulator) -> None:
    holdings = holding(sim.runtime, SOME_OF_EVERYTHING)
    before = sim.alive()
    there = {"slots": 12, "same_slots": 9}
    for wrong in range(-1, 15):
        for sample in (
            row.mapped(9, wrong, 1, 0),
            row.mapped(9, 2, wrong, 0),
            row.rights(wrong),
            row.rights(wrong, row.RW, row.RW),
            row.unmap(wrong, 1),
            row.unmap(8, wrong),
            row.advise(wrong, ("read_mostly", 0)),
            row.advise(wrong, ("read_mostly", 0), ("unset_read_mostly", 0)),
            row.prefetch(wrong),
            row.prefetch(6, wrong),
            row.attach(wrong, 3),
            row.attach(6, wrong),
            row.await_stream(wrong),
            row.copy(wrong, 8, 1, 1),
            row.copy(8, wrong, 1, 1),
        ):
            right = {"map": (2, 1), "unmap": (8, 1), "set access": (8,), "copy": (8,), "await stream": (3, -1)}
            if wrong in {**right, "advise": (6,), "prefetch": (6, 3, -1), "attach stream": (6, 3, -1)}[sample[0]]:
                continue
            refused(holdings, [sample], IndexError, **there)
            assert sim.alive() == before
    assert close(holdings).freed == 9


def test_rows_in_the_wrong_order_are_refused(sim: Simulator) -> None:
    holdings = nothing(sim.runtime)
    for rows in (
        [row.reserve(0), row.mapped(2, 0, 1), row.memory(1)],
        [row.memory(1), row.mapped(2, 0, 1), row.reserve(0)],
        [row.memory(1), row.rights(2), row.reserve(0), row.mapped(2, 0, 1)],
        [row.prefetch(0), row.managed(0)],
    ):
        refused(holdings, rows, IndexError, slots=3)
    assert sim.alive() == set()


def test_slots_that_are_taken_or_not_in_the_table_are_refused(sim: Simulator) -> None:
    holdings = holding(sim.runtime, [row.stream(0), row.stream(1), row.stream(2)])
    none: list[row.Row] = []
    refused(holdings, [row.stream(3)], IndexError, slots=3)
    refused(holdings, [row.stream(-1)], IndexError, slots=3)
    refused(holdings, [row.stream(0), row.stream(0)], IndexError, slots=3)
    refused(holdings, [row.stream(2)], IndexError, slots=3, same_slots=3)
    refused(holdings, [row.stream(1)], IndexError, slots=3, kept=[(1, 0, 1)])
    refused(holdings, none, IndexError, slots=3, same_slots=4)
    refused(holdings, none, IndexError, slots=2, same_slots=3)
    refused(holdings, none, IndexError, slots=3, kept=[(3, 0, 1)])
    refused(holdings, none, IndexError, slots=3, kept=[(0, 3, 1)])
    refused(holdings, none, (TypeError, OverflowError), slots=-1)
    for first in (0, 1, 3):
        for many in (4 - first, 2**63, 2**64 - 1):
            refused(holdings, none, IndexError, slots=3, kept=[(first, 0, many)])
            refused(holdings, none, IndexError, slots=3, kept=[(0, first, many)])
    refused(holdings, none, (TypeError, OverflowError), slots=3, kept=[(-1, 0, 1)])
    refused(holdings, none, (TypeError, OverflowError), slots=3, same_slots=3, renewed=[-1])
    refused(holdings, none, IndexError, slots=3, same_slots=2, renewed=[2])
    refused(holdings, none, IndexError, slots=3, same_slots=3, renewed=[3])
    refused(holdings, none, IndexError, slots=3, same_slots=3, renewed=[1, 1])
    refused(holdings, [row.stream(2)], IndexError, slots=3, same_slots=3, renewed=[1])
    for slots, extra in ((2**64 - 1, 2), (2, 2**64 - 1), (2**63, 2**63), (2**62, 0)):
        refused(holdings, none, (IndexError, ValueError, MemoryError), slots=slots, extra_slots=extra)
        refused(holdings, none, (IndexError, ValueError, MemoryError), slots=slots, extra_slots=extra, same_slots=2)
    assert close(holdings).freed == 3


def test_one_object_cannot_be_in_two_slots_nor_hide_another(sim: Simulator) -> None:
    """It would be freed twice, or not at all."""
    holdings = holding(sim.runtime, [row.memory(0), row.memory(1)])
    refused(holdings, [], IndexError, slots=2, kept=[(0, 0, 1), (1, 0, 1)])
    refused(holdings, [], IndexError, slots=2, same_slots=1, kept=[(1, 0, 1)])
    refused(holdings, [], IndexError, slots=2, kept=[(0, 0, 1), (0, 1, 1)])
    refused(holdings, [], IndexError, slots=2, kept=[(0, 0, 2), (1, 1, 1)])
    refused(holdings, [], IndexError, slots=2, same_slots=2, kept=[(0, 1, 1)])
    report = close(holdings)

    assert (report.freed, report.leaks) == (2, [])


def test_what_is_asked_of_the_wrong_slot_is_refused(sim: Simulator) -> None:
    snapshot = snapshot_of(holdings := holding(sim.runtime, SOME_OF_EVERYTHING))
    asked = {
        snapshot.address: {2, 4, 5, 6, 7, 8},
        snapshot.size_bytes: {1, 2, 4, 5, 6, 7, 8},
        snapshot.handle: {1},
        snapshot.stream_handle: {3},
        snapshot.share: set(),
    }
    for ask, good in asked.items():
        for slot in {*range(12), 2**64 - 1} - good:
            if (ask, slot) != (snapshot.share, 1):
                with pytest.raises(IndexError):
                    ask(slot)
        for slot in good:
            assert ask(slot)
    with pytest.raises(_core.HipError):
        snapshot.share(1)  # it was not made for that
    assert (9 in snapshot, 2**64 - 1 in snapshot) == (False, False)
    with pytest.raises(IndexError):
        snapshot.read_back(_core.Rows([row.memory(99)]), [0])
    with pytest.raises(IndexError):
        snapshot.read_back(_core.Rows([row.rights(3)]), [0])
    close(holdings)


def test_a_driver_s_own_refusals_leave_nothing(sim: Simulator) -> None:
    """Numbers that only the driver can judge."""
    holdings = holding(sim.runtime, [*MAPPED, row.managed(3)])
    for wrong in (
        row.stream(4, device=99),
        row.link(4, 0, 99),
        row.device_buffer(4, device=-7),
        row.memory(4, device=99),
        row.memory(4, size=1),
        row.mapped(4, 1, 0, 2**50),
        row.mapped(4, 1, 0),
        row.reserve(4, 2**63),
        row.rights(2, ((99, "rw"),), row.RW),
        row.advise(3, ("preferred_location", 77), ("unset_read_mostly", 0)),
        row.prefetch(3, size=2**40),
        row.copy(2, 2, 99, 99),
    ):
        refused(holdings, [wrong], _core.HipError, slots=5, same_slots=4)
    refused(holdings, [row.registered(4, 2**60)], OSError, slots=5, same_slots=4)
    refused(holdings, [row.registered(4, 0)], OSError, slots=5, same_slots=4)
    assert close(holdings).freed == 4


@pytest.mark.parametrize(
    "wrong", [{"a": (1, 0)}, {0: 1}, {0: (1,)}, {0: (1, 0, 0)}, {-1: (1, 0)}, {0: (1, -1)}, {0: (2**70, 0)}, {0: None}]
)
def test_what_is_bound_in_a_wrong_shape_is_refused(sim: Simulator, wrong: dict[Any, Any]) -> None:
    change = _core.Change(nothing(sim.runtime), _core.Rows([row.imported(0)]), slots=1)
    with pytest.raises((TypeError, ValueError)):
        change.bind(wrong)
    with pytest.raises(ValueError, match="nothing is bound"):
        change.advance(1)


KIND = (MIB, 0, "pinned", "device", "none", False)
MEMORY_RUN: row.Row = ("create allocations", "hot", 0, 0, 3, (KIND,))
MAPPING_RUN: row.Row = ("map and set access", "hot", 4, 0, 3, 3, 0, 0, MIB, (row.RW,))
"""Slot, first number, count; the slot of the range, offset, the first slot of memory, size."""


COLUMN: row.Row = ("hot", 4, 0, 3, 0, (row.RW,))
"""The mappings of chunks that go: slot, first number, count; the first slot of memory."""
UNMAP_RUN: row.Row = ("unmap chunks", (COLUMN,))
WAY = (False, 0, row.RW, 0, row.RW)
"""Whether the old memory is read in place; the device that writes, its rights; the device that reads, its rights."""
COPY_RUN: row.Row = ("copy chunks", "hot", 20, 0, 3, MIB, 0, 8, 12, (WAY,))
"""The first slot of temporary objects, first number, count; size; the first slots of the new memory, of the old memory
and of its mappings."""


def with_field(run: row.Row, place: int, value: Any) -> row.Row:
    return (*run[:place], value, *run[place + 1 :])


@pytest.mark.parametrize(
    ("run", "wrong", "why"),
    [
        (MEMORY_RUN, {2: -1}, "a run has slots"),
        (MEMORY_RUN, {5: ()}, "no kind"),
        (MEMORY_RUN, {3: 2**64 - 2}, "a run has a number that is too large"),
        (MAPPING_RUN, {2: -1}, "a run has slots"),
        (MAPPING_RUN, {5: -1}, "a run has slots"),
        (MAPPING_RUN, {7: -1}, "a run has slots"),
        (MAPPING_RUN, {3: 2**64 - 2}, "a run has a number that is too large"),
        (MAPPING_RUN, {6: 2**64 - MIB}, "a run has a number that is too large"),
        (MAPPING_RUN, {8: 2**63}, "a run has a number that is too large"),
        (MAPPING_RUN, {4: 2**63}, "more than memory can hold"),
    ],
)
def test_a_run_with_a_slot_or_number_that_it_cannot_have_is_refused(
    run: row.Row, wrong: dict[int, Any], why: str
) -> None:
    assert len(_core.Rows([run])) == (3 if run is MEMORY_RUN else 6)
    (place, value), = wrong.items()  # fmt: skip
    with pytest.raises(ValueError, match=why):
        _core.Rows([with_field(run, place, value)])


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({2: -1}, "a run has slots"),
        ({6: -1}, "a run has slots"),
        ({7: -1}, "a run has slots"),
        ({8: -1}, "a run has slots"),
        ({3: 2**64 - 2}, "a run has a number that is too large"),
        ({5: 2**63}, "a run has a number that is too large"),
        ({4: 2**62}, "more than memory can hold"),
        ({9: ()}, "copied in no way"),
        ({9: ((*WAY, 1),)}, "a row is too long"),
        ({9: (WAY[:-1],)}, "a row ends too early"),
        ({9: 1}, "is a tuple"),
    ],
)
def test_copies_of_a_run_that_cannot_be_are_refused(wrong: dict[int, Any], why: str) -> None:
    assert len(_core.Rows([COPY_RUN])) == 3 * 6
    assert len(_core.Rows([with_field(COPY_RUN, 9, (WAY, (True, *WAY[1:])))])) == 6 + 4 + 6
    (place, value), = wrong.items()  # fmt: skip
    with pytest.raises(ValueError, match=why):
        _core.Rows([with_field(COPY_RUN, place, value)])
    with pytest.raises(ValueError, match="a row is too long"):
        _core.Rows([(*COPY_RUN, 1)])


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ((), "no run goes"),
        ((with_field(COLUMN, 1, -1),), "a run has slots"),
        ((with_field(COLUMN, 4, -1),), "a run has slots"),
        ((with_field(COLUMN, 2, 2**64 - 2),), "a run has a number that is too large"),
        ((with_field(COLUMN, 3, 2**63),), "more than memory can hold"),
        ((COLUMN, with_field(COLUMN, 3, 2)), "runs that go together are of equal length"),
        ((with_field(COLUMN, 5, ()),), "mappings that go have rights"),
        (((*COLUMN, 1),), "a row is too long"),
        ((COLUMN[:-1],), "a row ends too early"),
        ("hot", "is a tuple"),
    ],
)
def test_mappings_that_go_as_a_run_that_cannot_be_are_refused(columns: Any, why: str) -> None:
    assert len(_core.Rows([UNMAP_RUN])) == 3
    assert len(_core.Rows([("unmap chunks", (COLUMN, with_field(COLUMN, 0, "cold")))])) == 6
    with pytest.raises(ValueError, match=why):
        _core.Rows([("unmap chunks", columns)])


ACCESS_RUN: row.Row = ("change access", "hot", 4, 0, 3, (((), row.RW),))
"""Slot, first number, count; the rights that the mappings get and had before."""


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({2: -1}, "a run has slots"),
        ({3: 2**64 - 2}, "a run has a number that is too large"),
        ({4: 2**63}, "more than memory can hold"),
        ({5: ()}, "mappings of a run get rights"),
        ({5: ((row.RW, row.RW, row.RW),)}, "a row is too long"),
        ({5: ((row.RW,),)}, "a row ends too early"),
        ({5: 1}, "is a tuple"),
    ],
)
def test_rights_of_a_run_that_cannot_be_are_refused(wrong: dict[int, Any], why: str) -> None:
    assert len(_core.Rows([ACCESS_RUN])) == 3
    (place, value), = wrong.items()  # fmt: skip
    with pytest.raises(ValueError, match=why):
        _core.Rows([with_field(ACCESS_RUN, place, value)])
    with pytest.raises(ValueError, match="a row is too long"):
        _core.Rows([(*ACCESS_RUN, 1)])


COUNT_RUN: row.Row = ("create counted", "s", 0, 5, 3, ("create device buffer", 0, MIB))
"""Slot, first number, count; the operation of each row and its fields behind the slot."""


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({2: -1}, "a run has slots"),
        ({3: 2**64 - 2}, "a run has a number that is too large"),
        ({4: 2**63}, "more than memory can hold"),
        ({5: ("create stream", 0)}, "is an allocation or a buffer"),
        ({5: ("create device buffer", 0)}, "a row ends too early"),
        ({5: ("create device buffer", 0, MIB, 1)}, "a row is too long"),
        ({5: "create device buffer"}, "a row is a tuple"),
    ],
)
def test_a_run_of_buffers_that_cannot_be_is_refused(wrong: dict[int, Any], why: str) -> None:
    assert len(_core.Rows([COUNT_RUN])) == 3
    (place, value), = wrong.items()  # fmt: skip
    with pytest.raises(ValueError, match=why):
        _core.Rows([with_field(COUNT_RUN, place, value)])
    with pytest.raises(ValueError, match="a row is too long"):
        _core.Rows([(*COUNT_RUN, 1)])


def test_runs_that_are_too_many_together_are_refused_before_anything_is_reserved() -> None:
    run = with_field(MAPPING_RUN, 4, 2**61)
    with pytest.raises(ValueError, match="the rows are more than memory can hold"):
        _core.Rows([run] * 5)
