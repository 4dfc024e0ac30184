"""Warnings of plans that do nothing useful: memory that nobody fills, prefetches without room, replaced advice."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan.cli.main import run
from hipplan.language.latest import Latest
from hipplan.lowering.compiler import compile as compile_plan
from hipplan.machines.machine import Machine

TWO: dict[str, Any] = {"hipplan": 1, "devices": {"gpu": {"count": 2}}}
SMALL = Machine.model_validate(
    {
        "name": "small",
        "hip_version": "7.3.0",
        "devices": [{"name": "GPU", "memory": size, "vmm": True, "managed": True} for size in ("16GiB", "4GiB")],
    }
)


def said(plan: dict[str, Any], machine: Machine | None = None) -> list[tuple[str, str]]:
    """(code, summary) of each warning."""
    loaded = hipplan.load(plan)
    warnings = compile_plan(loaded, machine).warnings if machine else loaded.warnings
    return [(warning.code, warning.summary) for warning in warnings]


def region(**more: Any) -> dict[str, Any]:
    return TWO | {"regions": {"w": {"device": "gpu.0", "size": "2MiB", **more}}}


@pytest.mark.parametrize(
    "access", [{"gpu.1": "r"}, {"gpu.1": "rw"}, {"gpu.0": "none", "gpu.1": "rw"}, {}, {"owner": "none"}], ids=str
)
def test_a_region_that_its_device_cannot_use_is_useless_without_contents(access: dict[str, str]) -> None:
    assert said(region(access=access)) == [("HP258", "gpu.0 holds 'w', but has no access to it")]


def test_a_region_that_another_device_fills_with_its_contents_is_not() -> None:
    assert said(region(access={"gpu.1": "rw"}) | {"contents": {"w": {"value": 1}}}) == []


@pytest.mark.parametrize("access", [None, {"gpu.0": "r"}, {"gpu.*": "rw"}, {"owner": "rw"}], ids=str)
def test_a_region_that_its_device_can_use_is_not(access: dict[str, str] | None) -> None:
    assert said(region(access=access)) == []


def test_one_of_several_devices_without_access_is_named_once() -> None:
    spread = {"devices": ["gpu.*"], "spread": "blocks", "chunk": "2MiB", "size": "8MiB", "count": None}
    plan = region(**spread, access={"gpu.0": "rw"})
    del plan["regions"]["w"]["device"], plan["regions"]["w"]["count"]
    assert said(plan) == [("HP258", "gpu.1 holds 'w', but has no access to it")]


def managed(*prefetch: dict[str, Any], size: str = "6GiB", **more: Any) -> dict[str, Any]:
    return {"kind": "managed", "size": size, "prefetch": [*prefetch], **more}


@pytest.mark.parametrize(
    ("buffers", "is_told"),
    [
        ({"m": managed({"to": "gpu.1"})}, True),
        ({"m": managed({"to": "gpu.0"})}, False),
        ({"m": managed({"to": "host"})}, False),
        ({"m": managed({"to": "gpu.1", "range": {"size": "2GiB"}})}, False),
        ({"m": managed({"to": "gpu.1", "range": {"at": "1GiB"}})}, True),
        ({"m": managed({"to": "gpu.1"}, {"to": "gpu.0"})}, False),
        ({"m": managed({"to": "gpu.0"}, {"to": "gpu.1"})}, True),
        ({"m": managed({"to": "gpu.1"}, {"to": "host", "range": {"at": "2GiB"}})}, False),
        ({"m": managed({"to": "gpu.1"}, size="3GiB")}, False),
        ({"m": managed({"to": "gpu.1"}, size="3GiB", count=2)}, True),
        ({"m": managed({"to": "gpu.1"}, size="3GiB"),
          "d": {"kind": "device", "device": "gpu.1", "size": "2GiB"}}, True),
    ],
)  # fmt: skip
def test_what_is_prefetched_to_a_device_has_to_fit_beside_the_rest(buffers: dict[str, Any], is_told: bool) -> None:
    codes = [code for code, _ in said(TWO | {"buffers": buffers}, SMALL)]
    assert codes == ["HP259"] * is_told


def test_the_warning_of_a_prefetch_has_the_sizes() -> None:
    plan = hipplan.load(TWO | {"buffers": {"m": managed({"to": "gpu.1"})}})
    (warning,) = compile_plan(plan, SMALL).warnings
    assert warning.summary == "gpu.1 cannot hold the 6GiB that are prefetched to it"
    assert warning.why.startswith("GPU has 4GiB")


def prefer(device: str | None, at: int = 0, size: int | None = None) -> dict[str, Any]:
    """An advice about a range, in KiB."""
    range_ = {"at": at * 1024} | ({"size": size * 1024} if size is not None else {})
    if device is None:
        return {"advise": "unset_preferred_location", "range": range_}
    return {"advise": "preferred_location", "device": device, "range": range_}


@pytest.mark.parametrize(
    ("advice", "summaries"),
    [
        ([prefer("gpu.0"), prefer("gpu.1")],
         ["gpu.1 replaces gpu.0 as the preferred location of 2MiB of 'm'"]),
        ([prefer("gpu.0"), prefer("host", 64, 64)],
         ["host replaces gpu.0 as the preferred location of 64KiB of 'm'"]),
        ([prefer("gpu.0", 0, 5), prefer("gpu.1", 5)],  # one page of both
         ["gpu.1 replaces gpu.0 as the preferred location of 4KiB of 'm'"]),
        ([prefer("gpu.0"), prefer("gpu.1", 0, 64), prefer("gpu.0", 32, 64)],
         ["gpu.1 replaces gpu.0 as the preferred location of 64KiB of 'm'",
          "gpu.0 replaces gpu.1 as the preferred location of 32KiB of 'm'"]),
        ([prefer("gpu.0", 0, 64), prefer("gpu.1", 64)], []),
        ([prefer("gpu.0"), prefer("gpu.0", 64, 64)], []),
        ([prefer("gpu.0"), prefer(None), prefer("gpu.1")], []),
        ([prefer("gpu.0"), prefer(None, 64, 64), prefer("gpu.1", 64, 64)], []),
        ([prefer("gpu.0"), {"advise": "accessed_by", "device": "gpu.1"}], []),
    ],
)  # fmt: skip
def test_the_same_bytes_have_one_preferred_location(advice: list[dict[str, Any]], summaries: list[str]) -> None:
    plan = TWO | {"buffers": {"m": managed(size="2MiB", advice=advice, count=3)}}
    expected = [("HP260", summary.replace("'m'", "'m.0'")) for summary in summaries]
    assert said(plan) == expected


def test_the_latest_value_of_each_byte_is_known() -> None:
    """Against a list with a value for each byte."""
    for seed in range(300):
        random_ = random.Random(seed)
        latest: Latest[int] = Latest()
        bytes_: list[int | None] = [None] * 20
        for value in range(12):
            start = random_.randrange(20)
            end = random_.randint(start + 1, 20)
            before: list[int | None] = [None] * 20
            for lower, upper, was in latest.set(start, end, value):
                before[lower:upper] = [was] * (upper - lower)
            assert before[start:end] == bytes_[start:end]
            assert before[:start] + before[end:] == [None] * (20 - (end - start))
            bytes_[start:end] = [value] * (end - start)
        now: list[int | None] = [None] * 20
        for lower, upper, was in latest:
            now[lower:upper] = [was] * (upper - lower)
        assert now == bytes_


@pytest.mark.parametrize(
    ("plan", "code"),
    [
        (region(access={"gpu.1": "r"}), "HP258"),
        (TWO | {"buffers": {"m": managed({"to": "gpu.0"}, size="400GiB")}}, "HP259"),
        (TWO | {"buffers": {"m": managed(size="2MiB", advice=[prefer("gpu.0"), prefer("gpu.1")])}}, "HP260"),
    ],
)
def test_strict_makes_them_errors(plan: dict[str, Any], code: str, tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(str(plan).replace("None", "null"))
    command = ["validate", str(file), "--machine", "sim-2"]
    assert run(command) == 0
    assert f"warning[{code}]" in capsys.readouterr().err
    assert run([*command, "--strict"]) != 0
    assert f"[{code}]" in capsys.readouterr().err
