"""What Python programs pass: accepted wherever it can only mean one thing, else refused in words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan.profiles import to_yaml
from hipplan.simulator import library_path
from tests.conftest import ROOT, Simulator

QUICKSTART = ROOT / "plans" / "quickstart.yaml"
MIB = 2**20


def plan(**nouns: Any) -> dict[str, Any]:
    return {"hipplan": 1, **nouns}


def test_vars_come_before_loading(sim: Simulator) -> None:
    size = plan(vars={"mib": 1}, buffers={"b": {"kind": "pinned", "size": "$(mib * 1MiB)"}})
    one, two = hipplan.load(size), hipplan.load(size, vars={"mib": 2})

    with pytest.raises(TypeError, match=r"vars are for a plan that is not loaded yet: give them to hipplan\.load\(\)"):
        hipplan.apply(one, vars={"mib": 2}, runtime="sim")
    assert sim.alive() == set()
    with hipplan.apply(one, vars={}, runtime="sim") as layout:
        with pytest.raises(TypeError, match="vars are for a plan that is not loaded yet"):
            layout.update(one, vars={"mib": 2})
        assert layout["b"].size == MIB
        layout.update(two)
        assert layout["b"].size == 2 * MIB


@pytest.mark.parametrize("given", ["a=b", ["a=b"], 5])
def test_vars_are_a_mapping(given: Any) -> None:
    with pytest.raises(TypeError, match=f"vars is a mapping of names to values, not {type(given).__name__}"):
        hipplan.load(QUICKSTART, vars=given)


@pytest.mark.parametrize("given", [b"hipplan: 1\n", None, 5, ["hipplan"]])
@pytest.mark.parametrize(
    "use",
    [hipplan.load, hipplan.apply, lambda given: hipplan.compile(given, "sim-2")],
    ids=["load", "apply", "compile"],
)
def test_a_plan_of_the_wrong_type_is_told(use: Callable[[Any], object], given: Any) -> None:
    wanted = f"a path, a text, an open stream or a mapping is wanted here, not {type(given).__name__}"
    with pytest.raises(TypeError, match=wanted):
        use(given)


def test_an_empty_path_is_no_folder() -> None:
    with pytest.raises(hipplan.PlanError, match="the path is empty"):
        hipplan.load("")


def test_a_machine_is_a_name_a_path_or_itself(sim: Simulator, tmp_path: Path) -> None:
    machine = hipplan.machine("sim-2")
    (box := tmp_path / "box.yaml").write_text(to_yaml(machine))

    assert hipplan.machine(machine) is machine
    for given in (machine, "sim-2", box, str(box)):
        assert hipplan.compile(QUICKSTART, machine=given).machine == "sim-2"
        with hipplan.apply(QUICKSTART, runtime="sim", machine=given) as layout:
            assert layout.program.machine == "sim-2"
    with pytest.raises(TypeError, match="not int"):
        hipplan.compile(QUICKSTART, machine=2)  # type: ignore[arg-type]


def test_a_runtime_may_be_a_path(sim: Simulator) -> None:
    with hipplan.apply(QUICKSTART, runtime=Path(library_path())) as layout:
        assert layout.runtime.path == str(library_path())
    with pytest.raises(hipplan.RuntimeUnavailable, match="there is no runtime"):
        hipplan.apply(QUICKSTART, runtime=f"{library_path()}\0.so")
