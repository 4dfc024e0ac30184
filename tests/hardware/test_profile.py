"""What `hipplan machine` measures is the shipped profile, where this machine is of a kind that has one."""

from __future__ import annotations

import pytest

from hipplan.machines.discover import discover
from hipplan.machines.profiles import diff, load_machine, machine_names
from tests.hardware.machine import Machine

OWN = {"name", "description", "host_memory", "uuid", "pci", "in_use", "limits", "sources", "unknown", "rdma"}
"""Figures that each machine has for itself, or for the kernel that it runs."""


def test_the_machine_is_as_its_shipped_profile_says(machine: Machine) -> None:
    if machine.simulated:
        pytest.skip("the simulator is made from its profile")
    measured = discover(machine.chosen)
    kind = (measured.devices[0].name, len(measured.devices), measured.runtime)
    shipped = [load_machine(name) for name in machine_names()]
    same = [profile for profile in shipped if (profile.devices[0].name, len(profile.devices), profile.runtime) == kind]
    if not same:
        pytest.skip(f"no profile ships for {kind[1]} x {kind[0]}")
    different = [item for item in diff(same[0], measured) if _is_told(*item)]
    assert different == []


def _is_told(figure: str, shipped: object, measured: object) -> bool:
    """What a runtime does not tell (CUDA: what a link is, whether memory can be shared) a profile may know."""
    if OWN & set(figure.split(".")):
        return False
    if figure.startswith("links."):
        return None in (shipped, measured)
    return measured is not None
