"""Fail every driver call of a whole command in turn, queries included: a failure has a code, and leaves nothing."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hipplan
from hipplan import _core
from hipplan.cli import main
from hipplan.errors import HipplanError
from hipplan.processes.answering import allow_verify, answers
from tests.conftest import ROOT, Simulator
from tests.faults.harness import FOR_EVER, ONCE, chosen, same_calls_each_time

pytestmark = pytest.mark.in_parts

PLAN = """
hipplan: 1
devices: {gpu: {count: 2}}
peers: all
allocations: {a: {device: gpu.1, size: 2MiB}}
reservations: {r: {mappings: [{allocation: a, access: {gpu.0: r, gpu.1: rw}}]}}
regions: {hot: {device: gpu.0, size: 4MiB, chunk: 2MiB, reserve: 16MiB}}
buffers:
  linked: {kind: device, device: gpu.0, size: 1MiB}
  staging: {kind: pinned, size: 64KiB}
contents: {hot: {value: 7}}
"""
OTHER = PLAN.replace("size: 4MiB", "size: 6MiB").replace("size: 64KiB", "size: 128KiB")

COMMANDS = {
    "apply": ["apply", "{plan}", "--once", "--runtime", "sim"],
    "apply, recorded": ["apply", "{plan}", "--once", "--runtime", "sim", "--record", "{folder}/record.jsonl"],
    "apply, saved": ["apply", "{plan}", "--once", "--runtime", "sim", "--save", "linked={folder}/linked.npy"],
    "apply, not read back": ["apply", "{plan}", "--once", "--runtime", "sim", "--no-verify"],
    "preview": ["preview", "{plan}", "--runtime", "sim"],
    "preview --from": ["preview", "{other}", "--from", "{plan}", "--runtime", "sim"],
    "lock": ["lock", "{plan}", "--runtime", "sim", "-o", "{folder}/plan.lock"],
    "machine": ["machine", "--runtime", "sim"],
    "bench": ["bench", "--runtime", "sim", "--size", "1MiB", "--repeats", "1"],
}


@pytest.fixture
def quick(sim: Simulator) -> Iterator[Simulator]:
    sim.runtime.set_retry_pause(0)
    with same_calls_each_time():
        yield sim
    sim.runtime.set_retry_pause(1000)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "plan.yaml").write_text(PLAN)
    (tmp_path / "other.yaml").write_text(OTHER)
    return {"plan": str(tmp_path / "plan.yaml"), "other": str(tmp_path / "other.yaml"), "folder": str(tmp_path)}


def each_call(
    sim: Simulator, trace: Path, mode: str, act: Callable[[str], None], begin: Callable[[], None] = lambda: None
) -> int:
    """Fails the calls of `act` in turn, those that are `chosen`; how many it makes."""
    begin()
    trace.unlink(missing_ok=True)
    sim.runtime.trace_to(str(trace))
    act("nothing")
    sim.runtime.trace_to("")
    calls = [json.loads(line)["call"] for line in trace.read_text().splitlines()]
    for nth, _ in chosen(calls, everywhere=False):
        begin()
        rule = f"*@{nth}{mode}=hipErrorUnknown"
        sim.runtime.arm_faults(rule)
        act(rule)
        assert sim.runtime.faults_fired(), f"{rule}: that call was never made"
        sim.runtime.arm_faults("")
        _core.take_leaks()
        ctypes.CDLL(sim.runtime.path).hipSetDevice(0)
    return len(calls)


@pytest.mark.parametrize("what", COMMANDS)
@pytest.mark.parametrize("mode", [ONCE, FOR_EVER], ids=["once", "for ever"])
def test_a_command_fails_with_a_code_and_words_of_ours(
    what: str, mode: str, quick: Simulator, files: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = [command.format(**files) for command in COMMANDS[what]]

    def act(rule: str) -> None:
        code = main.run(arguments)
        output = capfd.readouterr().err

        assert code in (0, 3, 4, 5), f"{rule}: {code}: {output}"
        assert code == 0 or re.search(r"error\[HP\d{3}\]", output), f"{rule}: {output}"
        assert code == 5 or quick.alive() == set(), f"{rule}: {code}: {output}"

    def begin() -> None:
        quick.free_everything()

    assert each_call(quick, Path(files["folder"], "trace"), mode, act, begin) >= 5
    quick.free_everything()


@contextlib.contextmanager
def answering(layout: hipplan.Layout) -> Iterator[None]:
    """A thread in which this process answers, and which ends; the library's own one serves until the process ends."""
    ended = threading.Event()

    def serve() -> None:
        while not ended.is_set():
            select.select([listener], (), (), 0.01)
            listener.serve()

    allow_verify(layout)
    with answers() as listener:
        assert listener is not None
        thread = threading.Thread(target=serve)
        thread.start()
        yield
        ended.set()
        thread.join()


@pytest.mark.parametrize("mode", [ONCE, FOR_EVER], ids=["once", "for ever"])
def test_what_verify_cannot_read_back_is_reported_and_the_layout_stays(
    mode: str, quick: Simulator, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIPPLAN_SOCKETS", str(tmp_path / "sockets"))
    with hipplan.apply(PLAN, runtime="sim") as layout, answering(layout):
        there = quick.alive()

        def act(rule: str) -> None:
            code = main.run(["verify", str(os.getpid())])
            output = capfd.readouterr()
            answer = output.out + output.err

            assert code in (0, 4, 6), f"{rule}: {code}: {answer}"
            assert code == 0 or "hipErrorUnknown" in answer, f"{rule}: {code}: {answer}"
            assert "Traceback" not in answer
            assert (quick.alive(), layout.closed) == (there, False)

        assert each_call(quick, tmp_path / "trace", mode, act) >= 5
        assert layout.drift() == []


def test_a_program_on_the_simulator_meets_the_fault_that_sim_was_given(tmp_path: Path) -> None:
    """The exit code of sim is that of the program. In one process each call is failed in turn, see above."""
    (tmp_path / "plan.yaml").write_text("hipplan: 1\nbuffers: {b: {kind: device, size: 1MiB}}\n")
    program = ["--", sys.executable, "-m", "hipplan", "apply", str(tmp_path / "plan.yaml"), "--once"]
    program += ["--runtime", "sim", "--no-verify"]
    trace = tmp_path / "trace"

    def sim(*more: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "hipplan", "sim", "--machine", "sim-1", *more, *program]
        return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=120)

    assert sim("--trace", str(trace)).returncode == 0
    calls = len(trace.read_text().splitlines())
    assert calls >= 10
    codes = set()
    for nth in (1, calls // 2, calls):
        done = sim("--fail", f"*@{nth}+=hipErrorUnknown")
        codes.add(done.returncode)
        assert done.returncode in (0, 3, 4, 5), done.stderr
        assert done.returncode == 0 or re.search(r"error\[HP\d{3}\]", done.stderr), done.stderr
    assert len(codes) > 1


LIBRARY: dict[str, Callable[[hipplan.Layout], object]] = {
    "apply": lambda layout: None,
    "update": lambda layout: layout.update(OTHER, lose="*"),
    "grow": lambda layout: layout.grow("hot", by="4MiB"),
    "fill": lambda layout: layout.fill("hot", 3),
    "remap": lambda layout: layout.remap("hot"),
    "remap a part": lambda layout: layout.remap("hot", part="..2MiB", device="gpu.1"),
    "close": lambda layout: layout.close(),
}


@pytest.mark.parametrize("what", LIBRARY)
def test_a_call_of_the_library_raises_what_is_ours(what: str, quick: Simulator, tmp_path: Path) -> None:
    layouts: list[hipplan.Layout] = []

    def begin() -> None:
        while layouts:
            layouts.pop().close()
        quick.free_everything()
        if what != "apply":
            layouts.append(hipplan.apply(PLAN, runtime="sim"))

    def act(rule: str) -> None:
        try:
            if what == "apply":
                layouts.append(hipplan.apply(PLAN, runtime="sim"))
            else:
                LIBRARY[what](layouts[0])
        except HipplanError as error:
            assert error.exit_code in (3, 4, 5), f"{rule}: {error}"
            assert layouts or quick.alive() == set(), f"{rule}: {error}"

    assert each_call(quick, tmp_path / "trace", ONCE, act, begin) >= 3
    while layouts:
        layouts.pop().close()
    quick.free_everything()


def test_a_library_without_a_version_is_no_runtime(files: dict[str, str]) -> None:
    line = [sys.executable, "-m", "hipplan", "sim", "--fail", "hipRuntimeGetVersion@1=hipErrorUnknown", "--",
            sys.executable, "-m", "hipplan", "apply", files["plan"], "--once", "--runtime", "sim"]  # fmt: skip
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=120)

    assert done.returncode == 3
    assert "error[HP407]" in done.stderr
