"""docs/coverage.md is complete and true: no function, parameter or value without a row, no row that names nothing."""

from __future__ import annotations

import copy
import importlib.util
import sys
from typing import Any

import pytest
import yaml

import hipplan
from hipplan.errors import PlanError
from hipplan.language.model.translate import REFUSED, REFUSED_VALUES
from tests.conftest import ROOT

TABLE: dict[str, Any] = yaml.safe_load((ROOT / "docs" / "coverage.yaml").read_text())


def module() -> Any:
    spec = importlib.util.spec_from_file_location("coverage_of_hip", ROOT / "docs" / "coverage.py")
    assert spec and spec.loader
    result = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = result
    spec.loader.exec_module(result)
    return result


COVERAGE = module()


def refused(table: dict[str, Any]) -> str:
    with pytest.raises(COVERAGE.CoverageError) as caught:
        COVERAGE.coverage(table)
    return str(caught.value)


def test_every_function_in_scope_has_its_rows() -> None:
    text = COVERAGE.coverage()

    for function in TABLE:
        assert f"\n## {function}\n" in text
    assert "`prop.location.type=hipMemLocationTypeHostNuma` | `Allocation.numa_node` |" in text
    assert "`advice=hipMemAdviseUnsetCoarseGrain` | `Advice.advise: unset_coarse_grain` |" in text
    assert "`mapInfoList` | *refused*: `sparse` (HP109), hipMemMapArrayAsync returns hipErrorNotSupported" in text


def test_a_function_without_a_row_is_an_error() -> None:
    assert [
        function
        for function in sorted(TABLE)
        if function not in refused({name: rows for name, rows in TABLE.items() if name != function})
    ] == []


@pytest.mark.parametrize(
    ("function", "row"), [("hipMemMap", "offset"), ("hipMemAdvise", "advice=hipMemAdviseSetAccessedBy"),
                          ("hipHostMalloc", "flags=hipHostMallocCoherent"), ("hipMemCreate", "prop.location.id")],
)  # fmt: skip
def test_a_parameter_or_value_without_a_row_is_an_error(function: str, row: str) -> None:
    table = copy.deepcopy(TABLE)
    del table[function]["rows"][row]

    assert row in refused(table)


@pytest.mark.parametrize(
    "said",
    [
        "plan: Allocation.sized",
        "plan: Allocations.size",
        "plan: Allocation.type=managed",
        "profile: Machine.power",
        "command: fly",
        "python: Layout.fly",
        "refused: everything",
        "refused: shareable=magic",
        "somewhere",
        "",
    ],
)
def test_a_row_that_names_nothing_is_an_error(said: str) -> None:
    table = copy.deepcopy(TABLE)
    table["hipMemCreate"]["rows"]["size"] = said

    assert refused(table)


@pytest.mark.parametrize("test", ["tests/unit/test_none.py", "tests/unit/test_coverage.py::test_none", "README.md::x"])
def test_a_test_that_does_not_exist_is_an_error(test: str) -> None:
    table = copy.deepcopy(TABLE)
    table["hipMemCreate"]["tests"] = [test]

    assert test in refused(table)
    table["hipMemCreate"]["tests"] = []
    assert "has no test" in refused(table)


@pytest.mark.parametrize("key", sorted(REFUSED))
def test_a_key_that_hip_has_no_use_for_is_refused_in_words(key: str) -> None:
    with pytest.raises(PlanError, match="HP109") as caught:
        hipplan.load({"hipplan": 1, "allocations": {"a": {"size": 1, key: 1}}})

    assert caught.value.diagnostics[0].why == REFUSED[key]


@pytest.mark.parametrize(("key", "value"), sorted(REFUSED_VALUES))
def test_a_value_that_hip_cannot_do_is_refused_in_words(key: str, value: str) -> None:
    with pytest.raises(PlanError, match="HP109") as caught:
        hipplan.load({"hipplan": 1, "allocations": {"a": {"size": 1, key: value}}})

    assert caught.value.diagnostics[0].why == REFUSED_VALUES[key, value]
