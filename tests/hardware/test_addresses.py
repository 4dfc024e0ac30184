"""Locked, attached and symmetric addresses in processes that do real work between their layouts.

HIPPLAN_ADDRESS_PAIRS: pairs of ranks at once (1). HIPPLAN_ADDRESS_ROUNDS: of each process (2).
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hipplan.machines.profiles import load_machine
from hipplan.machines.runtimes import sim_profile
from tests.conftest import ROOT, not_under_tsan
from tests.hardware import kernel
from tests.hardware.busy import EXACT, FILLED, RESERVED
from tests.hardware.machine import Machine

pytestmark = not_under_tsan

PAIRS = int(os.environ.get("HIPPLAN_ADDRESS_PAIRS", "1"))
ROUNDS = int(os.environ.get("HIPPLAN_ADDRESS_ROUNDS", "2"))


def region(name: str) -> dict[str, str]:
    return {"device": "gpu.0", "size": "2MiB", "chunk": "2MiB", "reserve": f"{RESERVED[name]}MiB"}


WEIGHTS = {name: region(name) for name in ("weights", "more")}
LOCKED = {name: region(name) for name in ("small", "middle", "large")}
HEAP = {"device": "gpu", "size": "2MiB", "map": {"ranks": "node", "access": "rw"}, "addresses": "symmetric"}


class Place:
    """A folder with the plans, and how hipplan is called there."""

    def __init__(self, folder: Path, machine: Machine) -> None:
        self.folder, self.machine = folder, machine
        (folder / "sockets").mkdir(mode=0o700)
        self.environment = os.environ | {
            "HIPPLAN_RUNTIME": machine.wanted,
            "HIPPLAN_SOCKETS": str(folder / "sockets"),
        }
        if machine.simulated:
            profile = f"{sim_profile(load_machine('sim-2'))}\nquirk.free_blocks_first=1"
            self.environment["HIPSIM_PROFILE"] = profile

    def write(self, name: str, **plan: Any) -> str:
        path = self.folder / name
        path.write_text(json.dumps({"hipplan": 1, "name": name, **plan}))
        return str(path)

    def hipplan(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "hipplan", *arguments, "--quiet"]
        done = subprocess.run(
            command, cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-X", "faulthandler", "-m", "tests.hardware.busy", str(self.folder), *arguments]
        return subprocess.Popen(command, cwd=ROOT, env=self.environment, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def place(machine: Machine, tmp_path: Path) -> Iterator[Place]:
    """With a holder "weights", a locked plan, and a plan for two ranks."""
    here = Place(tmp_path, machine)
    gpu = {"gpu": {"count": 1}}
    contents = {name: {"value": value, "dtype": "u8"} for name, value in FILLED.items()}
    held = here.write("held.yaml", devices=gpu, regions=WEIGHTS, contents={"weights": contents["weights"]})
    plan = here.write("plan.yaml", devices=gpu, regions=LOCKED, contents={"small": contents["small"]})
    ordinal = f"$(local_rank % {machine.linked})"
    here.write("ranks.yaml", ranks={"count": 2}, devices={"gpu": {"ordinal": ordinal}}, regions={"heap": HEAP})
    mapping = {"allocation": "memory", "access": {"gpu.0": "rw"}}
    memory = {"memory": {"device": "gpu.0", "size": "2MiB"}}
    exact = {name: {"size": f"{RESERVED[name]}MiB", "address": at, "mappings": [mapping]} for name, at in EXACT.items()}
    here.write("exact.yaml", devices=gpu, allocations=memory, reservations=exact)
    here.hipplan("lock", plan, "-o", str(tmp_path / "plan.lock"))
    here.hipplan("up", held, "--name", "weights")
    yield here
    here.hipplan("down", "weights", "--force")


@pytest.fixture(params=["memory", "torch", "model"])
def work(request: pytest.FixtureRequest, machine: Machine) -> str:
    """What the processes do between their layouts; skipped where it cannot be done."""
    kind: str = request.param
    why = ""
    if kind != "memory":
        why = "the simulator runs no kernels" if machine.simulated else kernel.available()
    if kind == "model" and importlib.util.find_spec("transformers") is None:
        why = why or "transformers is not installed"
    if why:
        pytest.skip(why)
    return kind


def test_every_round_of_every_process_has_its_addresses(work: str, place: Place, machine: Machine) -> None:
    machine.wavers()
    if work == "model":
        made = place.start("model")
        errors = made.communicate(timeout=300)[1]
        assert made.returncode == 0, errors
    numbers = [(pair, rank) for pair in range(PAIRS) for rank in range(2)]
    processes = [place.start(str(pair), str(rank), str(ROUNDS), work) for pair, rank in numbers]
    ended = [(process.communicate(timeout=550)[1], process.returncode) for process in processes]
    assert [code for _, code in ended] == [0] * len(ended), "\n".join(text[-2000:] for text, code in ended if code)
    reports = [json.loads((place.folder / f"{pair}.{rank}.json").read_text()) for pair, rank in numbers]
    good = sum(report["good"] for report in reports)
    taken = [line for report in reports for line in report["taken"]]
    print(
        f"{work}: {good} of {len(reports) * ROUNDS} rounds; {len(taken)} addresses were the work's own at first", *taken
    )
    errors = "\n".join(error for report in reports for error in report["errors"][:3])
    assert good == len(reports) * ROUNDS, errors
    for name in ("attached", "locked"):
        assert len({json.dumps(places) for report in reports for places in report["places"][name]}) == 1
    for one, other in zip(reports[::2], reports[1::2], strict=True):  # the two ranks of a pair
        seen = [(places["heap"], places["heap@1"]) for places in one["places"]["together"]]
        assert seen == [(places["heap@0"], places["heap"]) for places in other["places"]["together"]]
