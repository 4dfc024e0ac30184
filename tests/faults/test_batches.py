"""Steps made natively, many in one go, are the steps made one by one: the same calls, the same failures."""

from __future__ import annotations

import json
import os
import pickle
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hipplan.errors import ApplyError
from hipplan.language.loader import load
from hipplan.layout.options import OnStep, Options
from hipplan.layout.prepare import prepare
from hipplan.layout.run import run
from hipplan.layout.verify import native_rows
from hipplan.machines.runtimes import choose
from hipplan.program.program import Program
from tests.conftest import PLANS, Simulator
from tests.faults.harness import RELEASES, as_release, same_calls_each_time
from tests.pauses import alarm, during

MANY = {
    "hipplan": 1,
    "devices": {"gpu": {"count": 2}},
    "allocations": {"a": {"device": "gpu.0", "size": "2MiB", "count": 300}},
    "reservations": {
        "r": {
            "access": {"gpu.0": "rw", "gpu.1": "r"},
            "mappings": [{"allocation": "a.*"}, {"allocation": "a.0", "access": {}}],
        }
    },
    "buffers": {"b": {"kind": "device", "device": "gpu.1", "size": "1MiB", "count": 150}},
}

ALONE: OnStep = lambda number, step: None  # noqa: E731
"""An on_step callback, with which steps run one by one."""


ON_DEVICE = {"hipMemCreate", "hipMalloc"}
"""The calls of a batch for which the current device counts."""


@pytest.fixture(autouse=True, params=RELEASES)
def release(sim: Simulator, request: pytest.FixtureRequest) -> Iterator[None]:
    with as_release(sim, request.param):
        yield


def program(source: Any) -> Program:
    return prepare(load(source), choose("sim"), None)


def calls(sim: Simulator, made: Program, on_step: OnStep | None, to: Path) -> list[tuple[str, int, int]]:
    """(call, code, current device). A batch asks for and sets the current device once and not for each step."""
    sim.runtime.trace_to(str(to))
    run(made, sim.runtime, Options(on_step=on_step)).close()
    sim.runtime.trace_to("")
    current, out = 0, []
    for line in map(json.loads, to.read_text().splitlines()):
        if line["call"] == "hipSetDevice":
            (current,) = line["args"].values()
        elif line["call"] != "hipGetDevice":
            out.append((line["call"], line["code"], current))
    return out


@pytest.mark.parametrize("source", [*PLANS, MANY], ids=lambda one: getattr(one, "stem", "many"))
def test_both_ways_make_the_same_calls(source: Any, sim: Simulator, tmp_path: Path) -> None:
    made = program(source)
    together = calls(sim, made, None, tmp_path / "together")
    alone = calls(sim, made, ALONE, tmp_path / "alone")
    assert [item for item in together if item[0] in ON_DEVICE] == [one for one in alone if one[0] in ON_DEVICE]
    assert [one[:2] for one in together] == [item[:2] for item in alone]


def test_a_batch_asks_for_the_current_device_once_and_puts_it_back(sim: Simulator, tmp_path: Path) -> None:
    made = program(MANY)
    sim.runtime.trace_to(str(tmp_path / "trace"))
    layout = run(made, sim.runtime)
    sim.runtime.trace_to("")
    layout.close()
    lines = [json.loads(line) for line in (tmp_path / "trace").read_text().splitlines()]
    names = [line["call"] for line in lines]
    asked, made_calls = names.count("hipGetDevice"), sum(name in ON_DEVICE for name in names)
    assert made_calls == 450
    assert asked < 20 + 150  # the buffers' verification asks too
    assert [line["args"] for line in lines if line["call"] == "hipSetDevice"][-1] == {"device": 0}


@pytest.mark.parametrize(
    "call", ["hipMemCreate@299", "hipMemMap@1", "hipMemMap@200", "hipMemSetAccess@129", "hipMalloc@7"]
)
def test_both_ways_fail_alike(call: str, sim: Simulator) -> None:
    made = program(MANY)
    results = []
    for on_step in (None, ALONE):
        sim.runtime.arm_faults(f"{call}=hipErrorOutOfMemory")
        with pytest.raises(ApplyError) as caught:
            run(made, sim.runtime, Options(on_step=on_step))
        assert sim.alive() == set()
        results.append([note for note in caught.value.diagnostics[0].notes if "driver" not in note])
        results[-1].append(caught.value.diagnostics[0].summary)
    assert results[0] == results[1]


def test_checks_read_together_are_all_there(sim: Simulator) -> None:
    made = program(MANY)
    with run(made, sim.runtime) as layout:
        mapping = next(r.name for r in made.resources if r.kind == "mapping")
        collected = {check.what: check.current for check in layout.checks if check.name == mapping}
        assert collected["access of gpu.0"] == "rw"
        assert collected["access of gpu.1"] == "r"
        assert len(layout.checks) == 300 * 3 + 301 + 300 * 2 + 150 * 3
        assert all(check.ok for check in layout.checks)


def test_a_batch_of_slow_calls_goes_on_where_it_stopped(sim: Simulator, tmp_path: Path) -> None:
    """It ends every few milliseconds, also between a map and its access, to answer signals."""
    made = program(MANY | {"allocations": {"a": {"device": "gpu.0", "size": "2MiB", "count": 4}}})
    expected = calls(sim, made, None, tmp_path / "quick")
    sim.runtime.arm_faults("hipMemMap@1+=delay:6; hipMemSetAccess@2=delay:6; hipMalloc@3=delay:6")

    assert calls(sim, made, None, tmp_path / "slow") == expected


def test_slow_calls_add_none_where_the_same_calls_are_made_each_time(sim: Simulator, tmp_path: Path) -> None:
    """So that the fault sweeps count the same calls on a busy machine."""
    made = program(MANY | {"allocations": {"a": {"device": "gpu.0", "size": "2MiB", "count": 4}}})

    def names(to: Path) -> list[str]:
        sim.runtime.trace_to(str(to))
        with same_calls_each_time():
            run(made, sim.runtime).close()
        sim.runtime.trace_to("")
        return [json.loads(line)["call"] for line in to.read_text().splitlines()]

    expected = names(tmp_path / "quick")
    sim.runtime.arm_faults("hipMalloc@1=delay:6; hipMalloc@2=delay:6; hipMalloc@3=delay:6; hipFree@2=delay:6")

    assert names(tmp_path / "slow") == expected


def test_what_a_signals_handler_raises_is_no_step_s(sim: Simulator, tmp_path: Path) -> None:
    """An OSError would else be taken for a file's of the last step that was made by itself."""

    def handler(number: int, frame: Any) -> None:
        raise TimeoutError("mine")

    made = program(MANY)
    before = signal.signal(signal.SIGALRM, handler)
    try:
        with during(sim, tmp_path, "hipMemMap@20", alarm), pytest.raises(TimeoutError, match="mine"):
            run(made, sim.runtime)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert sim.alive() == set()


def test_a_handler_that_forks_leaves_the_making_to_the_parent(sim: Simulator, tmp_path: Path) -> None:
    children: list[int] = []

    def handler(number: int, frame: Any) -> None:
        children.append(os.fork())

    made = program(MANY)
    before = signal.signal(signal.SIGALRM, handler)
    with during(sim, tmp_path, "hipMemMap@20", alarm):
        try:
            run(made, sim.runtime).close()
            code = 1
        except RuntimeError as error:
            code = 0 if "a signal's handler has forked" in str(error) else 2
        finally:
            if children == [0]:
                os._exit(code)
    signal.signal(signal.SIGALRM, before)
    assert os.waitpid(children[0], 0)[1] == 0
    assert code == 1  # the parent has made and closed it
    assert sim.alive() == set()


def test_a_prepared_program_is_pickled_without_what_is_native(sim: Simulator) -> None:
    """Else it could not be read where there is no compiled part."""
    made = program(MANY)
    rows = native_rows(made)
    assert native_rows(made) is rows
    assert rows not in vars(made).values()
    copy = pickle.loads(pickle.dumps(made))
    assert native_rows(copy) is not rows
    assert copy == made
    run(copy, sim.runtime).close()
