"""Rights that change on the mappings of runs: the same steps as for mappings that are written out, as one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import pytest

import hipplan
from hipplan.kinds.allocation.live import CreateAllocation
from hipplan.kinds.mapping.live import ChangeAccess, Rights
from hipplan.program import on_demand, sealing
from hipplan.program.access_runs import AccessRun, changed_rights, regiven_runs
from hipplan.program.chunk_runs import MappingRun, MemoryRun
from hipplan.program.difference import difference
from hipplan.program.program import Program
from hipplan.program.runs import alike
from hipplan.program.series import segments

SIZE = 1 << 21
RW: Rights = ((0, "rw"),)
READ: Rights = ((0, "r"),)
PEER: Rights = ((0, "rw"), (1, "r"))
NEVER = 1 << 40


def run(first: int, count: int, rights: Sequence[Rights]) -> MappingRun:
    kinds = [CreateAllocation("", None, n, SIZE, SIZE, "pinned", "device", "none") for n in range(len(rights))]
    return MappingRun(MemoryRun("a", range(first, first + count), kinds), first * SIZE, None, rights)


@pytest.mark.parametrize(
    ("before", "now"),
    [((RW,), (READ,)), ((RW, PEER), (READ, ((0, "r"), (1, "r")))), ((PEER, RW), (RW, ((1, "r"),)))],
)
@pytest.mark.parametrize("count", [1, 2, 3, 40])
def test_a_run_changes_each_of_its_mappings(before: Sequence[Rights], now: Sequence[Rights], count: int) -> None:
    was, mapped = run(3, count, before), run(3, count, now)
    single = [(was.access(number), mapped.access(number)) for number in mapped.numbers]

    steps = changed_rights([(was, mapped)])

    assert [*steps] == [*changed_rights(single)]
    assert [type(part) for part in steps.segments()] == [AccessRun]
    assert [steps[number] for number in range(count)] == [*steps]
    assert sum(many for _, many in alike(steps)) == count
    assert {step.now for step, _ in alike(steps) if isinstance(step, ChangeAccess)} == {
        step.now for step in steps if isinstance(step, ChangeAccess)
    }


def test_equal_runs_change_equally() -> None:
    first, again = (AccessRun(run(0, 40, (READ,)), (RW,)) for _ in range(2))

    assert first == again
    assert first != AccessRun(run(0, 40, (READ,)), (PEER,))
    assert first != AccessRun(run(1, 40, (READ,)), (RW,))


def test_a_run_gets_other_rights_only_as_a_whole_and_in_its_pattern() -> None:
    there = run(0, 4, (RW, PEER))
    names = [there.name_of(number) for number in there.numbers]

    assert [now for _, now in regiven_runs(there, dict.fromkeys(names, READ))] == [run(0, 4, (READ, READ))]
    assert [*regiven_runs(there, dict.fromkeys(names[:3], READ))] == []
    assert [*regiven_runs(there, dict(zip(names, (READ, RW, RW, READ), strict=True)))] == []
    assert [*regiven_runs(there, dict.fromkeys(names, ()))] == []


def compiled(plan: Mapping[str, Any], least: int, monkeypatch: pytest.MonkeyPatch) -> Program:
    monkeypatch.setattr(on_demand, "LEAST", least)
    return hipplan.compile(plan, "sim-2")


PLANS: dict[str, dict[str, Any]] = {
    "one device": {"kv": {"size": "16MiB", "chunk": "2MiB"}},
    "both in turn": {"kv": {"size": "18MiB", "chunk": "2MiB", "devices": ["gpu.0", "gpu.1"], "access": {"gpu.1": "r"}}},
    "one of them may only read": {
        "kv": {"size": "18MiB", "chunk": "2MiB", "devices": ["gpu.0", "gpu.1"], "access": {"owner": "rw", "gpu.0": "r"}}
    },
    "two regions": {"kv": {"size": "16MiB", "chunk": "2MiB"}, "w": {"size": "8MiB", "chunk": "2MiB"}},
    "nobody's": {"kv": {"size": "8MiB", "chunk": "2MiB", "access": {"gpu.0": "none"}}},
}


@pytest.mark.parametrize("name", PLANS)
def test_a_seal_of_runs_is_that_of_what_is_written_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = {"hipplan": 1, "regions": PLANS[name]}
    changes = []
    for least in (1, NEVER):
        old = compiled(plan, least, monkeypatch)
        closed = sealing.sealed(old, ["kv"])
        again = sealing.unsealed(closed, ["kv"])
        assert again.steps == old.steps
        changes.append([difference(old, closed), difference(closed, again)])

    for in_runs, written_out in zip_longest(*changes):
        assert [*in_runs.changes] == [*written_out.changes]
        assert [*in_runs.regiven] == [*written_out.regiven]
        assert in_runs.changed == written_out.changed
        assert [*map(str, in_runs.lines())] == [*map(str, written_out.lines())]
        assert [*in_runs.new.steps] == [*written_out.new.steps]
        assert {**in_runs.new.rights} == {**written_out.new.rights}


def test_one_sealed_chunk_leaves_the_others_in_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    old = compiled({"hipplan": 1, "regions": PLANS["one device"]}, 1, monkeypatch)
    one = replace(old.rights["kv[3]"], rights=READ)
    closed = old.regiven([one], sealed={"kv[3]": (("gpu.0", "rw"),)})

    change = difference(closed, sealing.sealed(closed, ["kv"]))

    assert [step.name for step in change.changes] == [f"kv[{number}]" for number in (0, 1, 2, 4, 5, 6, 7)]
    assert [type(part) for part in segments(change.changes)] == [AccessRun, AccessRun]
    assert [*difference(closed, sealing.unsealed(closed, ["kv"])).changes] == [
        ChangeAccess("kv[3]", one.origin, RW, READ)
    ]


@pytest.mark.parametrize("least", [1, NEVER])
def test_what_contents_write_is_sealed_after_them_in_the_order_of_the_steps(
    least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = {
        "hipplan": 1,
        "regions": {"kv": {"size": "8MiB", "chunk": "2MiB", "seal": True}},
        "contents": {"kv": {"value": 1}},
    }
    program = compiled(plan, least, monkeypatch)
    opened = sealing.opened(program, program.contents)

    assert [*sealing.seals(opened, program)] == [
        ChangeAccess(f"kv[{number}]", opened.rights[f"kv[{number}]"].origin, READ, RW) for number in range(4)
    ]
    assert [*sealing.seals(opened, replace(program, name="of unknown origin"))] == [*sealing.seals(opened, program)]
