"""These tests run on whatever HIPPLAN_RUNTIME says (amd, cuda, a path); without it on the simulator, so that they
never rot. None of them needs more than a few hundred megabytes, nor more devices than there are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

import hipplan
from hipplan.errors import RuntimeUnavailable
from hipplan.machines.runtimes import choose
from tests.hardware import kernel
from tests.hardware.machine import Held, Machine


@pytest.fixture(scope="session")
def opened() -> Machine:
    wanted = os.environ.get("HIPPLAN_RUNTIME", "sim")
    try:
        machine = Machine(choose(wanted))
    except RuntimeUnavailable as error:  # once, and not for each test
        pytest.exit(str(error), 3)
    use_all_devices(machine)  # what a context and a queue take is not the plan's
    for device in range(machine.count):
        machine.make_streams(device, 64)  # NVIDIA's driver keeps 2 MiB for every four that there ever were at once
    with hipplan.apply({"hipplan": 1, "devices": {"gpu": {"count": 1}}}, runtime=machine.wanted):
        pass  # the first layout of a process may open files that stay
    return machine


def use_all_devices(machine: Machine) -> None:
    for device in range(machine.count):
        with machine.scratch(device, 4096) as own:
            machine.copy(own, own + 2048, 2048)


@pytest.fixture
def machine(opened: Machine) -> Iterator[Machine]:
    """The runtime; fails the test that leaves memory, a descriptor or an object behind."""
    if opened.simulated:  # it opens a file for each device, anew where another test has given it other devices
        use_all_devices(opened)
    opened.slack, opened.new_descriptors = opened.kept_by_driver, False
    before, alive = Held.by(opened), opened.alive()
    yield opened
    opened.disarm()
    after = Held.by(opened)
    if opened.new_descriptors:
        after = replace(after, files=before.files)
    assert after.same(before, opened.slack), (before, after)
    assert opened.alive() == alive


@pytest.fixture
def gpu(machine: Machine) -> Machine:
    """A machine whose kernels can be run, through PyTorch."""
    why = "the simulator runs no kernels" if machine.simulated else kernel.available()
    if why:
        pytest.skip(why)
    machine.wavers()
    machine.new_descriptors = True
    return machine


@pytest.fixture
def pair(machine: Machine) -> Machine:
    """A machine with two devices that reach each other."""
    if machine.count < 2 or not machine.runtime.can_access_peer(0, 1):
        pytest.skip("needs two linked devices")
    return machine
