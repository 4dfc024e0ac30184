"""Sizes of many chunks in a line."""

from __future__ import annotations

from pathlib import Path

import pytest

import hipplan
from hipplan.kinds.reservation.live import Reserve
from hipplan.lowering.compiler import compile as compile_plan
from hipplan.program.families import in_families, one_by_one, sizes_of
from hipplan.program.lock import Locked, lock, to_yaml
from hipplan.program.runs import runs

CHUNK = 2 << 20
ONE_BY_ONE = {"a": 1, "r#0": 2, "r[0]": 2, "r#1": 2, "r[1]": 2, "r#2": 3, "r[2]": 3, "r#4": 3, "b#x": 1, "b#01": 1}
IN_FAMILIES = {"a": 1, "b#x": 1, "b#01": 1, "r#0..1": 2, "r#2": 3, "r#4": 3, "r[0..1]": 2, "r[2]": 3}


def test_neighbours_of_one_size_are_a_family() -> None:
    assert in_families(ONE_BY_ONE.items()) == IN_FAMILIES
    assert in_families(IN_FAMILIES.items()) == IN_FAMILIES
    assert in_families([("r#2..3", 1), ("r#0..1", 1), ("r#4", 1)]) == {"r#0..4": 1}
    assert one_by_one(IN_FAMILIES) == ONE_BY_ONE


def test_a_family_of_too_many_is_not_written_out() -> None:
    sizes = {"r#0..9999999999": 2, "r#5..4": 1, f"r#0..{'9' * 5000}": 1}
    assert one_by_one(sizes) == {"r#0..9999999999": 2, f"r#0..{'9' * 5000}": 1}
    assert in_families([("r#0..9999999999", 2)]) == {"r#0..9999999999": 2}


@pytest.mark.parametrize("count", [3, 4000])
@pytest.mark.parametrize("spread", ["blocks", "interleave"])
def test_the_sizes_of_a_program_are_those_of_its_objects(count: int, spread: str) -> None:
    region = {"devices": ["gpu.*"], "size": count * CHUNK, "chunk": CHUNK, "spread": spread}
    plan = {"hipplan": 1, "devices": {"gpu": {"count": 2}}, "regions": {"r": region},
            "buffers": {"b": {"kind": "device", "device": "gpu.0", "size": "64KiB"}}}  # fmt: skip
    program = compile_plan(hipplan.load(plan), "mi300x-8")
    sizes = sizes_of(program)
    assert sizes == {"b": 65536, "r": count * CHUNK, f"r#0..{count - 1}": CHUNK, f"r[0..{count - 1}]": CHUNK}
    assert one_by_one(sizes) == {resource.name: resource.size for resource in program.resources}
    assert lock(program).sizes == sizes


def test_a_lock_of_version_1_is_read(tmp_path: Path) -> None:
    region = {"device": "gpu.0", "size": 100 * CHUNK, "chunk": CHUNK}
    program = compile_plan(hipplan.load({"hipplan": 1, "devices": {"gpu": {"count": 1}}, "regions": {"r": region}}),
                           "mi300x-8")  # fmt: skip
    before = lock(program)
    file = tmp_path / "old.lock"
    file.write_text(to_yaml(before.model_copy(update={"hipplan_lock": 1, "sizes": one_by_one(before.sizes)})))
    assert "  r#99: 2097152\n" in file.read_text()
    held = Locked(file).placed(program)
    assert {s.name: s.address for _, s in held.single if isinstance(s, Reserve)} == before.addresses
    assert [*runs(held.steps)] == [*runs(program.steps)]

    file.write_text(file.read_text().replace("  r#99: 2097152\n", "  r#99: 4096\n"))
    with pytest.raises(hipplan.MachineError) as error:
        Locked(file).placed(program)
    assert [str(diagnostic.summary) for diagnostic in error.value.diagnostics] == [
        "'r#99' is 2MiB; in the lock it is 4KiB"
    ]
