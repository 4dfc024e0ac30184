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
from hipplan.holders import asking, names
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
    """up(plan, *arguments): a holder "held" of a plan; what it says of itself."""
    if machine.runtime.memory_info(0)[0] < SIZE:
        pytest.skip(f"the device has less than {SIZE} bytes free: set HIPPLAN_HELD")
    place = tmp_path / "run"
    place.mkdir(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
    monkeypatch.setenv("HIPPLAN_RUNTIME", machine.wanted)

    def start(plan: dict[str, Any], *arguments: str) -> dict[str, Any]:
        file = tmp_path / "plan.yaml"
        file.write_text(json.dumps(plan))
        assert run(["up", str(file), "--name", "held", "--quiet", *arguments]) == 0
        return asking.status("held")

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
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_many_attach_and_half_of_them_are_killed(machine: Machine, up: Up) -> None:
    status = up(plan())
    own = Path(f"/proc/{status['pid']}/fd")
    wait_until(lambda: not asking.status("held")["attached"], "the end of those attached")
    descriptors, found = min(_counted(own) for _ in range(20)), []  # the last question of its state may still be open
    for number in range(CLIENTS):
        found.append(client("whole" if number in (0, CLIENTS - 1) else "kill" if number % 2 else "some"))
    print(f"attached in {[round(one['ms']) for one in found]} ms")
    assert [one["differing"] + one["drift"] for one in found] == [0] * CLIENTS
    assert all(one["addresses"] == found[0]["addresses"] for one in found)
    wait_until(lambda: not asking.status("held")["attached"], "the end of those attached")
    wait_until(lambda: _counted(own) <= descriptors, "as few descriptors as before")


def test_a_holder_takes_no_device_memory_of_its_own(machine: Machine, up: Up) -> None:
    """And `down` frees all that it holds; the fixture compares what is free at the end."""
    if machine.simulated or "KFDSIM_MACHINE" in os.environ:
        pytest.skip("each process counts its own memory here")
    before = machine.runtime.memory_info(0)[0]
    up(plan())
    held = before - machine.runtime.memory_info(0)[0]
    machine.slack = 2 * MIB
    assert SIZE <= held <= SIZE + machine.slack


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
