"""Holders of memory that lies on the host: other processes map it at the same addresses, and it sleeps and wakes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import hipplan
from hipplan.errors import ApplyError, HeldError
from hipplan.holders import requests
from tests.conftest import WHOLE, Simulator
from tests.descriptors import descriptors, opened
from tests.faults.counting import points
from tests.holders.clients import CONTEXT, Task, result, start
from tests.holders.test_holders import attached, code, until
from tests.holders.test_killed import about
from tests.pauses import LONG_S, Pause
from tests.started import run

MIB = 2**20
PLAN = """hipplan: 1
name: tiers
devices: {gpu: {count: 2}}
regions:
  model:
    devices: [gpu.0, host]
    sizes: [2MiB, 4MiB]
    chunk: 2MiB
    access: {gpu.*: rw}
    tensors:
      a: {dtype: f32, shape: [524288]}
      b: {dtype: f32, shape: [1048576]}
  table: {device: host, size: 2MiB, attached: rw}
contents: {model.a: {value: 1.5}, model.b: {value: 2.5}, table: {value: 7}}
"""
READS = """
import sys, hipplan
with hipplan.attach("w", answer=False) as layout:
    layout.fill("table", int(sys.argv[1]))
    print(layout["model"].address, layout["table"].address, float(layout.read("model.b").max()), layout.drift())
"""


@pytest.fixture
def host(folder: Path, tmp_path: Path) -> Iterator[Path]:
    """The plan of the holder "w"."""
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN)
    assert run(["up", str(plan), "--name", "w", "--quiet"]) == 0
    yield plan
    assert run(["down", "w", "--force", "--quiet"]) == 0
    until(lambda: not about(plan))


def read_by_another(value: int) -> list[str]:
    """What another process sees, after it has filled the table with a value."""
    line = [sys.executable, "-c", READS, str(value)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=LONG_S)
    assert done.returncode == 0, done.stderr
    return done.stdout.split(maxsplit=3)


def test_other_processes_map_it_at_the_same_addresses(host: Path, sim: Simulator) -> None:
    hipplan.attach("w").close()  # from now on a thread of this process answers `hipplan verify`
    before = descriptors(but="hipsim")
    with hipplan.attach("w", answer=False) as layout:
        assert layout["model"].resource.bytes_by_device == (("gpu.0", 2 * MIB), ("host", 4 * MIB))
        assert (layout.read("model.a") == 1.5).all() and (layout.read("model.b") == 2.5).all()
        assert layout.drift() == []
        model, table = layout["model"].address, layout["table"].address
        assert (numpy.from_dlpack(layout["table"].on("host")) == 7).all()
        for value in (3, 4):  # twice in a row
            assert read_by_another(value) == [str(model), str(table), "2.5", "[]\n"]
            assert (layout.read("table") == value).all()
            assert (numpy.from_dlpack(layout["table"].on("host")) == value).all()
    until(lambda: attached() == [])
    assert sim.alive() == set()
    assert descriptors(but="hipsim") == before


def test_it_sleeps_and_wakes_with_its_bytes(host: Path, sim: Simulator) -> None:
    before = read_by_another(7)
    for _ in range(2):  # in a row
        assert run(["sleep", "w", "--quiet"]) == 0
        assert requests.status("w")["asleep"] == {"kept": "host", "bytes": 8 * MIB}
        assert run(["wake", "w", "--quiet"]) == 0
    assert read_by_another(7) == before
    assert run(["sleep", "w", "--quiet", "--keep", "drop"]) == 4  # another process may have written the table
    assert sim.alive() == set()


def test_a_holder_does_not_sleep_mapped(host: Path, capfd: Any) -> None:
    assert run(["sleep", "w", "--keep", "mapped"]) == 4
    error = capfd.readouterr().err
    assert "error[HP440]: the holder 'w' cannot sleep to 'mapped'" in error
    assert "no process has its memory mapped" in error
    with pytest.raises(HeldError) as caught:
        requests.sleep("w", keep="mapped", wait_s=0.0, options=(), streams=(0, 1, 2), timeout_s=30.0)
    assert code(caught) == "HP440"
    assert requests.status("w")["state"] == "ready"


def test_who_is_attached_moves_nothing_to_the_host(host: Path) -> None:
    with hipplan.attach("w", answer=False) as layout:
        for move in (
            lambda: layout.sleep("model", to="mapped"),
            lambda: layout.sleep("table", to="mapped"),
            lambda: layout.remap("model", device="host"),
            lambda: layout.remap("model", part="..2MiB", device="host"),
        ):
            with pytest.raises(ApplyError) as caught:
                move()
            assert code(caught) in ("HP420", "HP440")
            assert len(str(caught.value).splitlines()) <= 4
        assert (layout.asleep, layout.drift()) == ({}, [])


def test_a_release_without_such_memory_says_so(folder: Path, tmp_path: Path, capfd: Any) -> None:
    (plan := tmp_path / "plan.yaml").write_text(PLAN)
    assert run(["up", str(plan), "--name", "w", "--quiet", "--machine", "mi300x-8"]) in (0, 3)
    errors = capfd.readouterr().err
    if "HP309" not in errors:
        assert run(["down", "w", "--quiet"]) == 0


def test_a_client_that_is_killed_at_any_message_is_detached(host: Path) -> None:
    environment = {name: os.environ[name] for name in ("HIPPLAN_SOCKETS", "HIPPLAN_RUNTIME")}
    complete = result(*start(Task("w"), environment))
    assert complete is not None and complete.ok
    for packet in range(1, complete.packets + 1):
        result(*start(Task("w", packet), environment))
        until(lambda: attached() == [])
    assert result(*start(Task("w"), environment)) == complete


OWN = {"hipplan": 1, "regions": {"part": {"size": "6MiB", "chunk": "2MiB", "reserve": "32MiB", "overflow": "host"}}}
NEVER = "*@1000000000=1"
"""Counts the calls."""


def moves(pipe: Any, environment: dict[str, str], rule: str) -> None:
    """In a process: maps the holder's memory, and moves memory of its own to the host and back in each way."""
    os.environ.update(environment)
    with hipplan.attach("w", answer=False), hipplan.apply(OWN, answer=False) as own:
        own.runtime.arm_faults(rule)
        for part in (None, "..2MiB"):
            own.remap("part", part=part, device="host")
            own.remap("part", part=part, device="gpu.0", retain=part is None)
        own.sleep("part", to="mapped")
        own.wake(retain=True)
        own.sleep("part")
        own.wake()
        own.grow("part", by="2MiB")
        calls = own.runtime.calls_counted()
        own.runtime.arm_faults("")
    pipe.send(calls)


def begin(rule: str) -> tuple[Any, Any]:
    """The process, and the pipe that says how many driver calls it made."""
    environment = {name: os.environ[name] for name in ("HIPPLAN_SOCKETS", "HIPPLAN_RUNTIME")}
    here, there = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=moves, args=(there, environment, rule), daemon=True)
    process.start()
    there.close()
    return process, here


@pytest.mark.in_turns
def test_a_process_that_is_killed_while_it_moves_memory_leaves_nothing(host: Path, tmp_path: Path) -> None:
    process, pipe = begin(NEVER)
    calls = pipe.recv()
    process.join()
    assert calls > 100
    until(lambda: attached() == [])
    before, files = read_by_another(7), [*opened(requests.status("w")["pid"])]
    for number in range(1, calls + 1, 1 if WHOLE else 30):
        points["processes that are killed while they move memory"] += 1
        pause = Pause(tmp_path, f"*@{number}")
        process, pipe = begin(pause.rule)
        with pause.under_way():
            process.kill()
            process.join()
        pipe.close()
        pause.fifo.unlink()
        until(lambda: attached() == [])
        assert requests.status("w")["state"] == "ready"
    assert read_by_another(7) == before
    until(lambda: len([*opened(requests.status("w")["pid"])]) <= len(files))
