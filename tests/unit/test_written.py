"""Programs as text, and read again."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan.errors import PlanError
from hipplan.program.program import Program
from hipplan.program.written import digest, read, write
from tests.faults.generated import plan as generated

ROOT = Path(__file__).parents[2]
PLANS = sorted((ROOT / "plans").rglob("*.yaml"))


def machine_for(path: Path) -> str:
    return path.parent.name if path.parent.name not in ("plans", "ranks") else "mi300x-8"


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_a_program_is_read_as_it_was_written(path: Path) -> None:
    program = hipplan.compile(path, machine_for(path))
    text = write(program)
    again = read(text)

    assert again == program
    assert (again.resources, again.slots, again.contents) == (program.resources, program.slots, program.contents)
    assert write(again) == text


@pytest.mark.parametrize("seed", range(20))
def test_a_program_made_by_a_rule_is_read_as_it_was_written(seed: int, tmp_path: Path) -> None:
    program = hipplan.compile(generated(seed, tmp_path), "sim-2")

    assert read(write(program)) == program


def test_the_same_plan_is_written_as_the_same_bytes_in_every_process() -> None:
    code = f"""
import hashlib, hipplan
from hipplan.program.written import write
for name in {[str(path) for path in PLANS]!r}:
    machine = "h200-4" if "h200" in name else "mi300x-8"
    print(hashlib.sha256(write(hipplan.compile(name, machine)).encode()).hexdigest())
"""
    output = {
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert len(output) == 1
    assert len(next(iter(output)).split()) == len(PLANS)


NO_PROGRAMS = [
    "",
    "[]",
    "{}",
    "null",
    '{"hipplan": 1}',
    '{"hipplan_program": 2}',
    '{"hipplan_program": 3, "steps": []}',
    '{"hipplan_program": true, "steps": []}',
    '{"hipplan_program": 1}',
    '{"hipplan_program": 1, "steps": 3}',
    '{"hipplan_program": 1, "steps": [{"step": "System"}]}',
    "[" * 100_000,
    "9" * 10_000,
    b"\xff\xfe",
]


@pytest.mark.parametrize("text", NO_PROGRAMS, ids=lambda text: repr(text[:20]))
def test_what_is_no_program_is_refused(text: str | bytes) -> None:
    with pytest.raises(PlanError) as caught:
        read(text)
    (diagnostic,) = caught.value.diagnostics

    assert diagnostic.code == "HP028"
    assert diagnostic.why


def test_steps_that_name_what_is_not_there_are_refused() -> None:
    data = json.loads(write(hipplan.compile(ROOT / "plans" / "quickstart.yaml", "sim-2")))
    for number, step in enumerate(data["steps"]):
        for key in ("allocation", "reservation", "stream"):
            if step.get(key):
                wrong = [*data["steps"][:number], {**step, key: "nothing"}, *data["steps"][number + 1 :]]
                with pytest.raises(PlanError, match="HP028"):
                    read(json.dumps({**data, "steps": wrong}))


def _places(data: Any) -> list[tuple[Any, Any]]:
    """Each list or dictionary with each of its keys."""
    keys = data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
    return [place for key in keys for place in ((data, key), *_places(data[key]))]


def test_half_of_a_surrogate_pair_is_refused() -> None:
    data = json.loads(write(hipplan.compile(ROOT / "plans" / "contents.yaml", "sim-2")))
    next(iter(data["regions"].values()))["region"][1]["tensors"]["wq"]["dtype"] = "\ud800"

    with pytest.raises(PlanError, match="not Unicode"):
        read(json.dumps(data))


@pytest.mark.parametrize("path", [ROOT / "plans" / "contents.yaml", ROOT / "plans" / "quickstart.yaml"], ids=str)
def test_a_program_with_anything_wrong_in_it_is_read_or_refused(path: Path) -> None:
    """It raises no other error, whatever the text is."""
    text, chance = write(hipplan.compile(path, "sim-2")), random.Random(7)
    refused = 0
    for _ in range(300):
        data = json.loads(text)
        holder, key = chance.choice(_places(data))
        if chance.random() < 0.3 and isinstance(holder, dict):
            del holder[key]
        else:
            holder[key] = chance.choice([None, "x", -1, 2**70, 1.5, [], {}, [[]], {"step": "Map"}, True, "\ud800"])
        try:
            assert isinstance(read(json.dumps(data)), Program)
        except PlanError:
            refused += 1
    assert refused > 100


OLD = {
    "hipplan": 1,
    "name": "old",
    "devices": {"gpu": {"count": 2}},
    "regions": {
        "kv": {"devices": ["gpu.*"], "spread": "interleave", "size": "80MiB", "chunk": "2MiB", "reserve": "1GiB"},
        "w": {"device": "gpu.0", "size": "8MiB", "chunk": "2MiB", "seal": True},
    },
    "buffers": {"b": {"kind": "managed", "size": "1MiB"}},
}


def test_what_version_1_has_written_is_read() -> None:
    text = (ROOT / "tests" / "golden" / "program-version-1.json").read_text()

    assert '"hipplan_program": 1' in text
    assert read(text) == hipplan.compile(OLD, "sim-2")
    assert digest(read(text)) == digest(hipplan.compile(OLD, "sim-2"))


def in_runs() -> dict[str, Any]:
    """The text of a program in runs, as data."""
    data: dict[str, Any] = json.loads(write(hipplan.compile(OLD, "sim-2")))
    assert [step["run"] for step in data["steps"] if "run" in step and step["region"] == "kv"] == ["memory", "mappings"]
    return data


def test_runs_with_anything_wrong_in_them_are_read_or_refused() -> None:
    text, chance, refused = json.dumps(in_runs()), random.Random(11), 0
    for _ in range(600):
        data = json.loads(text)
        runs = [step for step in data["steps"] if "run" in step] + [data["regions"]["kv"]["chunks"]]
        holder, key = chance.choice(_places(chance.choice(runs)))
        if chance.random() < 0.3 and isinstance(holder, dict):
            del holder[key]
        else:
            holder[key] = chance.choice([None, "x", -1, 0, 1, 2**70, 1.5, [], {}, [[]], True, "memory", "\ud800"])
        try:
            assert isinstance(read(json.dumps(data)), Program)
        except PlanError:
            refused += 1
    assert refused > 300


def wrong_runs() -> dict[str, dict[str, Any]]:
    """What is wrong -> the text, as data."""
    made: dict[str, dict[str, Any]] = {}

    def with_run(wrong: str, which: str, **fields: Any) -> None:
        data = made[wrong] = in_runs()
        next(step for step in data["steps"] if step.get("run") == which and step["region"] == "kv").update(fields)

    with_run("too many chunks", "memory", count=10**9)
    with_run("fewer chunks than kinds", "memory", count=1)
    with_run("mappings without memory", "mappings", count=41)
    with_run("some rights", "mappings", rights=[[], [[0, "rw"]]])
    with_run("a negative offset", "mappings", offset=-1)
    with_run("another kind", "mappings", run="others")
    with_run("memory of other names", "memory", first=7)
    twice = made["one run twice"] = in_runs()
    twice["steps"] += [step for step in twice["steps"] if step.get("run") == "memory"]
    single = made["a chunk beside its run"] = in_runs()
    kind = next(step for step in single["steps"] if step.get("run") == "memory")["kinds"][0]
    single["steps"].append({"step": "CreateAllocation", **kind})
    gone = made["no range"] = in_runs()
    gone["steps"] = [s for s in gone["steps"] if (s.get("step"), s.get("name")) != ("Reserve", "kv")]
    again = made["chunks again"] = in_runs()
    again["regions"]["kv"]["chunks"][0]["count"] = 10**9
    return made


@pytest.mark.parametrize("wrong", wrong_runs())
def test_runs_that_do_not_fit_together_are_refused(wrong: str) -> None:
    with pytest.raises(PlanError, match="HP028"):
        read(json.dumps(wrong_runs()[wrong]))
