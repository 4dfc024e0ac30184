"""Random changes with random failures end in the old snapshot or in the new one, and leave nothing when all is closed.

HIPPLAN_EXAMPLES sets how many are tried (`make reliability`: 1,000).
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hipplan import _core
from tests.conftest import Key, Simulator
from tests.cpp import some_rows as row
from tests.cpp.some_rows import MIB, SIZE, advance, close, free_retired, nothing, snapshot_of
from tests.faults.harness import RELEASES, as_release

tries = settings(
    max_examples=int(os.environ.get("HIPPLAN_EXAMPLES", "40")),
    derandomize="HIPPLAN_EXAMPLES" not in os.environ,
    database=None,
)

ADVISED = "preferred_location"
PREFERRED, NOT_PREFERRED = (ADVISED, 1), (f"unset_{ADVISED}", 1)
"""The attribute that tells the preferred device of managed memory."""
BOTH, SEALED = ((0, "rw"), (1, "rw")), ((0, "r"), (1, "r"))


@dataclass(frozen=True)
class Old:
    """A slot of the old snapshot, in a row that is to name it."""

    slot: int


class Random:
    """Random programs from a seed: a layout, and rows that change it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.kinds: list[tuple[Any, ...]] = []
        """Of what the holdings have, by slot: (kind, and what it lies in by its slot)."""

    def change(self) -> tuple[list[row.Row], dict[str, Any], list[tuple[Any, ...]]]:
        """Rows of the change, arguments of begin(), and the objects after it."""
        self.rows: list[row.Row] = []
        self.extra: dict[int, int] = {}
        stays = self._stays()
        self.new = [self._moved(self.kinds[old], stays) for old in stays]
        self.kept = list(enumerate(stays))
        for _ in range(self.random.randrange(6)):
            self._make()
        self._alter(stays)
        slots = len(self.new)
        # Slots of the old snapshot that rows name lie behind the new ones.
        place = {old: slots + number for number, old in enumerate(self.extra)}
        rows = [tuple(place[field.slot] if isinstance(field, Old) else field for field in one) for one in self.rows]
        kept = [(new, old, 1) for new, old in (*self.kept, *((place[old], old) for old in self.extra))]
        return rows, {"slots": slots, "extra_slots": len(place), "kept": kept}, self.new

    def _stays(self) -> list[int]:
        """Slots of the old, in a new order; what something lies in stays with it."""
        wanted = {slot for slot in range(len(self.kinds)) if self.random.random() < 0.6}
        for slot in list(wanted):
            wanted |= {*self.kinds[slot][1:]}
        out = sorted(wanted)
        self.random.shuffle(out)
        return out

    @staticmethod
    def _moved(kind: tuple[Any, ...], stays: list[int]) -> tuple[Any, ...]:
        return kind[0], *(stays.index(slot) for slot in kind[1:])

    def _slots(self, kind: str) -> list[int]:
        return [slot for slot, item in enumerate(self.new) if item[0] == kind]

    def _make(self) -> None:
        slot, device = len(self.new), self.random.randrange(2)
        kind = self.random.choice(["stream", "device", "pinned", "managed", "registered", "mapping"])
        if kind == "mapping":
            self.rows += [row.memory(slot, device=device), row.reserve(slot + 1), row.mapped(slot + 2, slot + 1, slot)]
            self.rows.append(row.rights(slot + 2, BOTH))
            self.new += [("memory",), ("range",), ("mapping", slot + 1, slot)]
            return
        made = {
            "stream": row.stream(slot, device=device),
            "device": row.device_buffer(slot, device=device),
            "pinned": row.pinned(slot),
            "managed": row.managed(slot),
            "registered": row.registered(slot),
        }
        self.rows.append(made[kind])
        self.new.append((kind,))

    def _alter(self, stays: list[int]) -> None:
        """What stays gets other rights and advice; some mappings other memory."""
        for new, old in enumerate(stays):
            kind = self.new[new]
            if self.random.random() < 0.4:
                continue
            if kind[0] == "mapping" and self.random.random() < 0.5:
                self._swap(new, old)
            elif kind[0] == "mapping":
                self.rows += [row.rights(new, SEALED, BOTH), row.rights(new, BOTH, SEALED)]
            elif kind[0] == "managed":
                self.rows += [row.advise(new, PREFERRED, NOT_PREFERRED), row.advise(new, NOT_PREFERRED, PREFERRED)]

    def _swap(self, new: int, old: int) -> None:
        """Other memory at the same place: the old mapping goes, and the new one is in its slot."""
        _, range_slot, _ = self.new[new]
        _, _, old_memory = self.kinds[old]
        for item in (old, old_memory):
            self.extra.setdefault(item, 0)
        self.kept = [pair for pair in self.kept if pair[0] != new]
        memory = len(self.new)
        self.new.append(("memory",))
        self.rows += [
            row.unmap(Old(old), Old(old_memory), BOTH),
            row.memory(memory),
            row.mapped(new, range_slot, memory),
            row.rights(new, BOTH),
        ]
        self.new[new] = ("mapping", range_slot, memory)


def faults(chance: random.Random) -> str:
    """Rules by which calls fail: one, or some of them now and then; sometimes none."""
    code = chance.choice(["999", "hipErrorOutOfMemory", "hipErrorInvalidValue", "hipErrorNotReady"])
    kind = chance.randrange(4)
    if kind == 0:
        return ""
    if kind == 1:
        return f"*@{chance.randrange(1, 40)}={code}"
    call = chance.choice(["hipMemMap", "hipMemSetAccess", "hipMemUnmap", "hipMemCreate", "hipMalloc", "hipMemAdvise"])
    return f"{call}@{chance.randrange(1, 4)}={code}" if kind == 2 else f"*@~0.05/{chance.randrange(2**30)}={code}"


def looks(sim: Simulator) -> Any:
    """All that is alive, the rights on it and advice about it, as the simulator says."""
    mappings = sorted(
        (mapping["address"], mapping["readers"], mapping["writers"]) for mapping in sim.ledger()["mappings"]
    )
    managed = [buffer["address"] for buffer in sim.ledger()["buffers"] if buffer["kind"] == "managed"]
    advice = [sim.runtime.range_attribute(int(item, 16), MIB, ADVISED) for item in sorted(managed)]
    return sim.alive(), mappings, advice


def owned(sim: Simulator, holdings: _core.Holdings) -> int:
    snapshot = snapshot_of(holdings)
    return sum(slot in snapshot for slot in range(len(snapshot)))


def bytes_of(sim: Simulator, holdings: _core.Holdings, kinds: list[tuple[Any, ...]]) -> list[bytes]:
    snapshot = snapshot_of(holdings)
    mapped = [snapshot.address(slot) for slot, one in enumerate(kinds) if one[0] == "mapping"]
    return [sim.read(address, SIZE) for address in mapped]


def mark(sim: Simulator, holdings: _core.Holdings, kinds: list[tuple[Any, ...]]) -> None:
    """Each mapping gets bytes of its own."""
    snapshot = snapshot_of(holdings)
    for slot, one in enumerate(kinds):
        if one[0] == "mapping":
            sim.fill(snapshot.address(slot), slot + 1, SIZE)


@tries
@given(seed=st.integers(0, 2**32), release=st.sampled_from(RELEASES))
def test_a_change_ends_in_the_old_or_in_the_new(seed: int, release: str, sim: Simulator) -> None:
    """Calls fail while it is made; the roll back is not disturbed."""
    with as_release(sim, release):
        change_at_random(seed, sim)


def change_at_random(seed: int, sim: Simulator) -> None:
    sim.runtime.set_retry_pause(0)
    chance, programs, holdings = random.Random(seed), Random(seed), nothing(sim.runtime)
    empty: set[Key] = sim.alive()
    for _ in range(6):
        mark(sim, holdings, programs.kinds)
        before, content, count = looks(sim), bytes_of(sim, holdings, programs.kinds), owned(sim, holdings)
        rows, plan, kinds = programs.change()
        change = _core.Change(holdings, _core.Rows(rows), timed=chance.random() < 0.3, **plan)
        sim.runtime.arm_faults(faults(chance))
        try:
            advance(change, len(rows))
            failed = False
        except _core.HipError:
            failed = True
        sim.runtime.arm_faults("")
        assert change.failed == failed
        end = chance.choice(["roll back", "drop"]) if failed or chance.random() < 0.2 else "commit"
        if end == "commit":
            change.commit(None)
            programs.kinds = kinds
        elif end == "roll back":
            change.roll_back()
        if end != "drop":
            report = free_retired(holdings)
            assert report.leaks == []
        del change

        assert not holdings.retired.any
        assert not holdings.damaged
        assert owned(sim, holdings) == len(sim.alive()) - len(empty) == len(programs.kinds)
        if end != "commit":
            assert (looks(sim), bytes_of(sim, holdings, programs.kinds)) == (before, content)
            assert owned(sim, holdings) == count
    report = close(holdings)
    assert (report.leaks, report.freed) == ([], len(programs.kinds))
    assert sim.alive() == empty
    sim.runtime.set_retry_pause(1000)


@tries
@given(seed=st.integers(0, 2**32))
def test_whatever_fails_also_while_it_is_undone_only_what_is_reported_is_left(seed: int, sim: Simulator) -> None:
    sim.runtime.set_retry_pause(0)
    chance, programs, holdings = random.Random(seed), Random(seed), nothing(sim.runtime)
    rows, plan, programs.kinds = programs.change()
    first = _core.Change(holdings, _core.Rows(rows), **plan)
    advance(first, len(rows))
    first.commit(None)
    rows, plan, _ = programs.change()
    change = _core.Change(holdings, _core.Rows(rows), **plan)
    sim.runtime.arm_faults(f"*@~0.1/{chance.randrange(2**30)}=999")
    try:
        advance(change, len(rows))
        change.commit(None)
    except _core.HipError:
        change.roll_back()
    reports = [free_retired(holdings)]
    taken_back = [leak for leak in reports[0].leaks if leak.is_change]
    assert holdings.damaged == bool(taken_back)
    del change, first
    reports.append(close(holdings))
    sim.runtime.arm_faults("")
    leaks = [leak for report in reports for leak in report.leaks if not leak.is_change]

    assert len(sim.alive()) == len(leaks)
    sim.free_everything()
    _core.take_leaks()  # what could not even set the current device back
    sim.runtime.set_retry_pause(1000)
