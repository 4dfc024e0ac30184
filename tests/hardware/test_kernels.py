"""Real kernels over mapped memory: who may read reads, who may write writes, who may not is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hipplan
from tests.hardware import kernel
from tests.hardware.machine import MIB, Machine
from tests.hardware.test_data import all_objects

ROOT = Path(__file__).parents[2]


@pytest.fixture
def kernels(pair: Machine, gpu: Machine) -> Machine:
    return gpu


def test_each_device_adds_to_memory_of_each(kernels: Machine) -> None:
    import torch

    with hipplan.apply(all_objects(kernels), runtime=kernels.wanted) as layout:
        base = layout["all"].address
        assert base is not None
        size = 2 * MIB * kernels.count
        kernels.runtime.fill(base, 0, size)
        for device in range(kernels.count):
            view: Any = kernel.tensor(device, base, size)
            view.add_(1)  # one kernel over the memory of all devices
            torch.cuda.synchronize(device)
        for device in range(kernels.count):
            view = kernel.tensor(device, base, size)
            assert int(view.sum(dtype=torch.int64)) == size * kernels.count
        del view
        torch.cuda.empty_cache()


@pytest.mark.parametrize(
    ("right", "does", "answer"),
    [
        ("rw", "write", f"done {5 * 2 * MIB}"),
        ("r", "read", f"done {3 * 2 * MIB}"),
        ("r", "write", "refused"),
        ("none", "read", "refused"),
        ("none", "write", "refused"),
        ("others", "read", f"done {3 * 2 * MIB}"),
        ("others", "write", "refused"),
        ("sealed", "read", f"done {3 * 2 * MIB}"),
        ("sealed", "write", "refused"),
    ],
)
def test_a_device_does_what_it_may_and_nothing_else(right: str, does: str, answer: str, kernels: Machine) -> None:
    command = [sys.executable, "-m", "tests.hardware.kernel", "1", "0", right, does]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.stdout.startswith(answer), done.stdout + done.stderr


def test_the_simulator_refuses_too(pair: Machine) -> None:
    """Its stand-in for a kernel."""
    if not pair.simulated:
        pytest.skip("for the simulator")
    import ctypes

    plan = {
        "hipplan": 1,
        "devices": {"gpu": {"count": 2}},
        "allocations": {"memory": {"device": "gpu.0", "size": 2 * MIB}},
        "reservations": {"range": {"access": {"gpu.0": "rw"}, "mappings": [{"allocation": "memory"}]}},
    }
    with hipplan.apply(plan, runtime=pair.wanted) as layout:
        where = ctypes.c_void_p(layout["range"].address)
        assert pair.hip.hipsim_touch(0, where, ctypes.c_size_t(4096), 3) == 0
        assert pair.hip.hipsim_touch(1, where, ctypes.c_size_t(4096), 1) != 0
