"""`attached:` in a plan: what it gives, and where it is refused or warned of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan.errors import PlanError
from hipplan.language.canonical import canonical
from hipplan.language.source import load_yaml
from hipplan.program import held, written
from hipplan.show import render, render_json


def plan(region: dict[str, Any] | None = None, reservation: dict[str, Any] | None = None) -> dict[str, Any]:
    mappings = [{"allocation": "a.0"}, {"allocation": "a.1", "attached": "r"}]
    return {
        "hipplan": 1,
        "devices": {"gpu": {"count": 2}},
        "allocations": {"a": {"size": "2MiB", "count": 2}},
        "regions": {"r": {"size": "2MiB", "attached": "rw", **(region or {})}, "plain": {"size": "2MiB"}},
        "reservations": {
            "v": {"access": {"gpu.0": "rw"}, "attached": "rw", "mappings": mappings, **(reservation or {})}
        },
    }


def warnings(data: dict[str, Any]) -> list[tuple[str, str]]:
    return [(warning.code, warning.summary) for warning in hipplan.load(data).warnings]


def test_a_mapping_has_the_right_of_its_reservation_unless_it_has_its_own() -> None:
    program = hipplan.compile(plan(), "sim-2")
    assert program.attached == {"r": "rw", "v": "rw", "v[1]": "r"}
    rights = {resource.name: resource.attached for resource in program.resources}
    assert [rights[name] for name in ("r", "r[0]", "v[0]", "v[1]", "plain", "plain[0]")] == ["rw"] * 3 + ["r"] * 3
    assert held.writable(program) == ["v[0]", "r"]
    assert written.read(written.write(program)) == program


def test_a_pattern_gives_its_right_to_each_member() -> None:
    program = hipplan.compile(plan(reservation={"mappings": [{"allocation": "a.*", "attached": "rw"}]}), "sim-2")
    assert held.writable(program) == ["v", "r"]


@pytest.mark.parametrize("right", ["none", "w", True, None])
def test_other_rights_are_refused(right: Any) -> None:
    with pytest.raises(PlanError) as caught:
        hipplan.load(plan({"attached": right}))
    assert caught.value.diagnostics[0].code in ("HP103", "HP104")


def test_write_access_that_no_device_has_is_warned_of() -> None:
    assert warnings(plan()) == []
    assert warnings(plan({"access": {"gpu.0": "r"}})) == [("HP255", "attached: rw in 'r' has no effect")]
    assert warnings(plan(reservation={"access": {"gpu.1": "r"}})) == [("HP255", "attached: rw in 'v' has no effect")]
    owner = {"devices": ["gpu.0", "gpu.1"], "access": {"owner": "rw", "others": "none"}}
    assert warnings(plan(owner)) == []


def test_an_update_of_it_changes_nothing_in_the_memory() -> None:
    old, new = (hipplan.compile(plan({"attached": right}), "sim-2") for right in ("r", "rw"))
    assert old.steps == new.steps
    assert old.attached != new.attached


def test_a_preview_shows_it() -> None:
    program = hipplan.compile(plan(), "sim-2")
    table = render.resources_table(program.resources)
    assert [line.split()[0] for line in table.splitlines() if "attached: rw" in line] == ["v[0]", "r", "r[0]"]
    data = {resource.name: render_json.resource_json(resource).get("attached") for resource in program.resources}
    assert {name for name, right in data.items() if right} == {"v[0]", "r", "r[0]"}


def test_fmt_puts_it_behind_seal() -> None:
    text = "hipplan: 1\nregions:\n  r: {attached: rw, size: 2MiB, seal: true}\n"
    assert "{size: 2MiB, seal: true, attached: rw}" in canonical(load_yaml(text, "plan.yaml"))


def test_a_variable_of_a_plan_that_includes_another_sets_it(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        "hipplan: 1\nvars: {right: r}\nregions: {r: {size: 2MiB, attached: $(right)}}\n"
    )
    other = tmp_path / "plan.yaml"
    other.write_text("hipplan: 1\ninclude: base.yaml\nvars: {right: rw}\n")
    assert hipplan.compile(tmp_path / "base.yaml", "sim-2").attached == {}
    assert hipplan.compile(other, "sim-2").attached == {"r": "rw"}
