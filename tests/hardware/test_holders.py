"""Memory that a holder keeps: many processes attach one after the other, half of them killed, and nothing is lost.

HIPPLAN_HELD: how much is held (64GiB where there is room; else 64MiB). HIPPLAN_HELD_CLIENTS: how many come (100; or 6).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan.cli.main import run
from hipplan.holders import names, requests
from hipplan.lowering.sure_access import concerned
from hipplan.machines.discover import discover
from hipplan.units import parse_size
from tests.conftest import ROOT
from tests.hardware.machine import MIB, Machine
from tests.pauses import wait_until

SIZE = parse_size(os.environ.get("HIPPLAN_HELD", "64MiB"))
CLIENTS = int(os.environ.get("HIPPLAN_HELD_CLIENTS", "6"))
TENSORS = 64

Up = Callable[..., dict[str, Any]]


@pytest.fixture
def up(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Up]:
    """up(plan, *arguments): starts a holder "held" of a plan; returns its status."""
    if machine.runtime.memory_info(0)[0] < SIZE:
        pytest.skip(f"the device has less than {SIZE} bytes free: set HIPPLAN_HELD")
    monkeypatch.setenv("HIPPLAN_SOCKETS", str(tmp_path / "sockets"))
    monkeypatch.setenv("HIPPLAN_RUNTIME", machine.wanted)

    def start(plan: dict[str, Any], *arguments: str) -> dict[str, Any]:
        file = tmp_path / "plan.yaml"
        file.write_text(json.dumps(plan))
        assert run(["up", str(file), "--name", "held", "--quiet", *arguments]) == 0
        return requests.status("held")

    yield start
    if any(name == "held" for name, _, _ in names.known()):
        assert run(["down", "held", "--wait", "--timeout", "60", "--quiet"]) == 0


def plan() -> dict[str, Any]:
    """Tensors that are filled with their numbers, in chunks of 1 GiB where there is so much."""
    elements = SIZE // TENSORS // 4
    tensors = {f"t{number}": {"dtype": "u32", "shape": [elements]} for number in range(TENSORS)}
    region = {"device": "gpu.0", "size": SIZE, "chunk": min(SIZE // 4, 1024 * MIB), "tensors": tensors}
    contents = {f"model.t{number}": {"value": number} for number in range(TENSORS)}
    return {"hipplan": 1, "devices": {"gpu": {"count": 1}}, "regions": {"model": region}, "contents": contents}


def _counted(descriptors: Path) -> int:
    time.sleep(0.01)
    return len([*descriptors.iterdir()])


def client(how: str) -> dict[str, Any]:
    """What a process that attaches finds."""
    command = [sys.executable, "-m", "tests.hardware.attached", "held", how]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == (-9 if how == "kill" else 0), done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_many_attach_and_half_of_them_are_killed(machine: Machine, up: Up) -> None:
    status = up(plan())
    own = Path(f"/proc/{status['pid']}/fd")
    wait_until(lambda: not requests.status("held")["attached"], "the end of those attached")
    descriptors, result = min(_counted(own) for _ in range(20)), []  # the last question of its state may still be open
    for number in range(CLIENTS):
        result.append(client("whole" if number in (0, CLIENTS - 1) else "kill" if number % 2 else "some"))
    print(f"attached in {[round(item['ms']) for item in result]} ms")
    assert [item["differing"] + item["drift"] for item in result] == [0] * CLIENTS
    assert all(item["addresses"] == result[0]["addresses"] for item in result)
    wait_until(lambda: not requests.status("held")["attached"], "the end of those attached")
    wait_until(lambda: _counted(own) <= descriptors, "as few descriptors as before")


def test_what_one_process_writes_another_reads_where_the_plan_allows_it(machine: Machine, up: Up) -> None:
    elements = 3 * MIB // 4
    wanted = plan()
    wanted["regions"]["cache"] = {
        "device": "gpu.0",
        "attached": "rw",
        "chunk": 2 * MIB,
        "tensors": {name: {"dtype": "u32", "shape": [elements]} for name in ("k", "v")},
    }
    wanted["contents"]["cache"] = {"value": 0}
    up(wanted)
    assert client("whole")["differing"] == 2 * elements
    written = client("write")
    assert written["refused"] == [f"model.t{number}" for number in range(TENSORS)]
    assert (written["differing"], written["drift"]) == (0, 0)
    read = client("whole")
    assert (read["differing"], read["drift"]) == (0, 0)


def test_mappings_of_one_range_may_differ_and_seals_hold(machine: Machine, up: Up, tmp_path: Path, capfd: Any) -> None:
    size = 4 * MIB

    def mail(*sizes: int) -> dict[str, Any]:
        mappings = [{"allocation": "a"}, {"allocation": "b", "attached": "rw"}]
        return {
            "hipplan": 1,
            "devices": {"gpu": {"count": 1}},
            "allocations": {name: {"size": size} for name, size in zip("ab", sizes, strict=True)},
            "reservations": {"mail": {"access": {"gpu.0": "rw"}, "mappings": mappings}},
            "regions": {"table": {"size": size, "seal": True, "attached": "rw"}},
            "contents": {"mail[0]": {"value": 1}, "mail[1]": {"value": 2}, "table": {"value": 3}},
        }

    profile = discover(machine.chosen, lambda _: ())
    if not machine.simulated and profile.runtime != "cuda" and profile.version < (7, 0):
        machine.new_descriptors = True  # AMD's 6.4 keeps one of each allocation that it has imported
    up(mail(size, size))
    with hipplan.attach("held") as layout:
        for name in ("mail[0]", "table"):
            with pytest.raises(hipplan.ApplyError, match="HP213"):
                layout.fill(name, 9)
        layout.fill("mail[1]", 4)
        layout.unseal("table")
        layout.fill("table", 5)
        layout.seal("table")
        assert [set(layout.read(name).tobytes()) for name in ("mail[0]", "mail[1]", "table")] == [{1}, {4}, {5}]
        assert layout.drift() == []
    file = tmp_path / "unequal.yaml"
    file.write_text(json.dumps(mail(size, 2 * size)))
    is_refused = concerned(profile)
    assert run(["replace", "held", str(file), "--lose", "*", "--quiet"]) == (3 if is_refused else 0)
    assert ("HP309" in capfd.readouterr().err) == is_refused


def test_a_holder_takes_no_device_memory_of_its_own(machine: Machine, up: Up) -> None:
    """And `down` frees all that it holds; the fixture compares what is free at the end."""
    if machine.simulated or "KFDSIM_MACHINE" in os.environ:
        pytest.skip("each process counts its own memory here")
    before = machine.runtime.memory_info(0)[0]
    up(plan())
    held = before - machine.runtime.memory_info(0)[0]
    machine.slack = 2 * MIB
    assert SIZE <= held <= SIZE + machine.slack


def test_a_holder_that_sleeps_frees_its_memory_and_has_the_same_bytes_again(machine: Machine, up: Up) -> None:
    """HIPPLAN_HELD bytes go to host memory and back; the speed is printed."""
    counts_others = not machine.simulated and "KFDSIM_MACHINE" not in os.environ
    machine.slack = 2 * MIB
    before = machine.runtime.memory_info(0)[0]
    up(plan())
    held = before - machine.runtime.memory_info(0)[0]
    first = client("some")["addresses"]
    wait_until(lambda: not requests.status("held")["attached"], "the end of those attached")
    began = time.perf_counter()
    assert run(["sleep", "held", "--quiet"]) == 0
    slept = time.perf_counter()
    assert requests.status("held")["asleep"] == {"kept": "host", "bytes": SIZE}
    if counts_others:
        assert held >= SIZE
        assert abs(machine.runtime.memory_info(0)[0] - before) <= machine.slack
    woken_from = time.perf_counter()
    assert run(["wake", "held", "--quiet"]) == 0
    woke = time.perf_counter()
    print(f"{SIZE / 1e9:.2f} GB: sleep {slept - began:.2f} s, wake {woke - woken_from:.2f} s")
    if counts_others:
        assert before - machine.runtime.memory_info(0)[0] >= SIZE
    found = client("whole")
    assert (found["differing"], found["drift"], found["addresses"]) == (0, 0, first)


def test_who_replaces_needs_room_beside_the_old(machine: Machine, up: Up, capfd: Any, tmp_path: Path) -> None:
    up(plan())
    large = plan()
    large["regions"]["model"]["size"] = machine.runtime.memory_info(0)[1] - SIZE // 2
    large["regions"]["model"]["chunk"] = 1024 * MIB
    file = tmp_path / "large.yaml"
    file.write_text(json.dumps(large))
    assert run(["replace", "held", str(file)]) == 3
    assert "HP301" in capfd.readouterr().err
    assert client("some")["differing"] == 0


def called(parameter: str) -> str:
    """What a plan calls a parameter of a module."""
    return "p" + parameter.replace(".", "_")


def test_a_module_whose_parameters_are_attached_computes_the_same(gpu: Machine, up: Up, tmp_path: Path) -> None:
    """As one that PyTorch has loaded from the same file."""
    import torch
    from torch import nn

    numpy = pytest.importorskip("numpy")
    torch.manual_seed(7)

    def module(device: str) -> nn.Module:
        layers = [nn.Embedding(1000, 256), nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256), nn.LayerNorm(256)]
        return nn.Sequential(*layers, nn.Linear(256, 1000)).to(device).eval()

    loaded = module("cuda:0")
    tensors, contents = {}, {}
    for name, parameter in loaded.state_dict().items():
        file = f"{name}.npy"
        numpy.save(tmp_path / file, parameter.cpu().numpy())
        short = called(name)
        tensors[short] = {"dtype": "f32", "shape": list(parameter.shape)}
        contents[f"model.{short}"] = {"file": file}
    region = {"device": "gpu.0", "tensors": tensors}
    up({"hipplan": 1, "devices": {"gpu": {"count": 1}}, "regions": {"model": region}, "contents": contents})
    tokens = torch.arange(64, device="cuda:0").reshape(4, 16)
    with torch.inference_mode(), hipplan.attach("held") as layout:
        attached = module("meta")
        state = {name: torch.from_dlpack(layout[f"model.{called(name)}"]) for name in loaded.state_dict()}
        attached.load_state_dict(state, assign=True)
        same = torch.equal(attached(tokens), loaded(tokens))
        parameter = next(attached.parameters())
        inside = parameter.data_ptr() == layout["model." + called("0.weight")].address
        del attached, state, parameter
    assert inside
    assert same
