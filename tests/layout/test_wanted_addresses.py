"""Locked addresses, holders and growth with a driver that takes a wanted address once it has no others (CUDA)."""

from __future__ import annotations

import ctypes
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan.errors import ApplyError
from hipplan.machines.profiles import load_machine
from hipplan.machines.runtimes import choose, sim_profile
from hipplan.program.lock import Locked, lock, to_yaml
from tests.conftest import Simulator, not_under_tsan
from tests.faults.harness import as_release

pytestmark = not_under_tsan

MIB = 2**20
QUIRK = "free_blocks_first"
PLAN: dict[str, Any] = {
    "hipplan": 1,
    "name": "wanted",
    "devices": {"gpu": {"count": 2}},
    "regions": {
        "small": {"device": "gpu.0", "size": "2MiB"},
        "large": {"device": "gpu.1", "size": "64MiB", "chunk": "32MiB"},
        "last": {"device": "gpu.0", "size": "2MiB"},
    },
}


@pytest.fixture
def cuda(sim: Simulator) -> Iterator[Simulator]:
    with as_release(sim, "7.2.53211", QUIRK):
        yield sim


@pytest.fixture
def locked(cuda: Simulator, tmp_path: Path) -> Path:
    path = tmp_path / "plan.lock"
    plan = hipplan.load(PLAN)
    from hipplan.layout.prepare import prepare

    path.write_text(to_yaml(lock(prepare(plan, choose("sim"), None))))
    return path


class Framework:
    """Allocates and frees device memory at random, as PyTorch does, and keeps a model."""

    def __init__(self, sim: Simulator) -> None:
        self._hip = ctypes.CDLL(sim.runtime.path)
        self._random = random.Random(36)
        self._memory: list[ctypes.c_void_p] = []

    def run(self, times: int) -> None:
        for _ in range(times):
            if self._memory and self._random.random() < 0.45:
                self._free(self._memory.pop(self._random.randrange(len(self._memory))))
            else:
                self._memory.append(self._new(self._random.choice((512, 2 * MIB, 20 * MIB, 700 * MIB))))
        for memory in self._memory[20:]:
            self._free(memory)
        del self._memory[20:]

    def end(self) -> None:
        for memory in self._memory:
            self._free(memory)
        self._memory.clear()

    def _new(self, size: int) -> ctypes.c_void_p:
        memory = ctypes.c_void_p()
        assert self._hip.hipMalloc(ctypes.byref(memory), ctypes.c_size_t(size)) == 0
        return memory

    def _free(self, memory: ctypes.c_void_p) -> None:
        assert self._hip.hipFree(memory) == 0


def apply(locked: Path) -> hipplan.Layout:
    layout = hipplan.apply(PLAN, runtime="sim", locked=locked, answer=False)
    for name, address in Locked(locked).lock.addresses.items():
        assert layout[name].address == address
    assert layout.drift() == []
    return layout


def test_locked_addresses_are_had_in_a_fresh_process_and_again(cuda: Simulator, locked: Path) -> None:
    for _ in range(3):
        apply(locked).close()


def test_locked_addresses_are_had_beside_a_model_and_after_it(cuda: Simulator, locked: Path) -> None:
    framework = Framework(cuda)
    for _ in range(5):
        framework.run(200)
        apply(locked).close()
    framework.end()
    apply(locked).close()


def test_memory_that_is_freed_meanwhile_takes_no_address_away(cuda: Simulator, locked: Path) -> None:
    framework = Framework(cuda)
    framework.run(200)
    with apply(locked) as layout:
        framework.end()
        with pytest.raises(
            ApplyError, match=r"HP404\]: 'small' cannot be at 0x\w+\n  why:  the layout 'wanted' has 'small'"
        ):
            hipplan.apply(PLAN, runtime="sim", locked=locked, answer=False)
        assert layout.drift() == []
    apply(locked).close()


def test_a_reservation_grows_behind_its_end(cuda: Simulator) -> None:
    mapping = {"allocation": "a", "access": {"gpu.0": "rw"}}
    plan = {
        "hipplan": 1,
        "devices": {"gpu": {"count": 1}},
        "allocations": {"a": {"device": "gpu.0", "size": "2MiB"}},
        "reservations": {"r": {"size": "2MiB", "mappings": [mapping], "address": 0x6ABB_0000_0000}},
    }
    with hipplan.apply(plan, runtime="sim", answer=False) as layout:
        for size in (4, 10, 100):
            layout.grow("r", to=f"{size}MiB")
            assert (layout["r"].address, layout["r"].size) == (0x6ABB_0000_0000, size * MIB)
        assert layout.drift() == []


ATTACH = """
import ctypes, json, sys
import hipplan
from hipplan.machines.runtimes import choose
hip = ctypes.CDLL(choose("sim").runtime.path)
places = []
for round in range(3):
    memory = ctypes.c_void_p()
    assert hip.hipMalloc(ctypes.byref(memory), ctypes.c_size_t(700 << 20)) == 0
    if round: hip.hipFree(memory)  # a model that has gone
    with hipplan.attach("wanted") as layout:
        places.append([layout[name].address for name in ("small", "large", "last")])
        assert set(layout.read("small").ravel()) == {7}
print(json.dumps(places))
"""


@pytest.mark.in_turns
def test_processes_attach_at_once_and_have_the_same_addresses(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(json.dumps({**PLAN, "contents": {"small": {"value": 7, "dtype": "u8"}}}))
    profile = f"{sim_profile(load_machine('sim-2'))}\nquirk.{QUIRK}=1"
    sockets = tmp_path / "sockets"
    sockets.mkdir(mode=0o700)
    environment = os.environ | {"HIPSIM_PROFILE": profile, "HIPPLAN_SOCKETS": str(sockets)}
    command = [sys.executable, "-m", "hipplan"]
    subprocess.run(
        [*command, "up", str(plan), "--name", "wanted", "--runtime", "sim", "--quiet"], env=environment, check=True
    )
    try:
        attached = [
            subprocess.Popen([sys.executable, "-c", ATTACH], env=environment, stdout=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        outcomes = [json.loads(process.communicate(timeout=300)[0]) for process in attached]
    finally:
        subprocess.run([*command, "down", "wanted", "--force", "--quiet"], env=environment, check=True)
    assert [len(places) for places in outcomes] == [3, 3]
    assert len({tuple(places) for outcome in outcomes for places in outcome}) == 1
