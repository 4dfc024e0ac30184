"""Fail every driver call of changes that add peer links, on a release whose links open mappings: no right is widened,
not even one of a device that the plan does not name, or the error names the mapping.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hipplan.layout.layout import Layout
from hipplan.machines.machine import Machine, sim_profile
from tests.conftest import Simulator
from tests.faults.change import Change
from tests.faults.harness import FOR_EVER, ONCE, RELEASES, Error, calls_of, failures_of, sweep_codes, sweep_undo
from tests.faults.test_changes import become
from tests.faults.test_every_call import program_of

LINKED: dict[str, Any] = {"name": "GPU", "arch": "gfx942", "memory": "16GiB", "vmm": True, "managed": True}
MACHINE: dict[str, Any] = {
    "name": "three-linked-and-one-apart",
    "devices": [LINKED] * 4,
    "meshes": [{"devices": [0, 1, 2], "type": "xgmi", "hops": 1}],
}

OLD = """
hipplan: 1
devices: {gpu: {count: 2}}
allocations:
  long: {device: gpu.0, size: 4MiB}
  short: {device: gpu.0, size: 2MiB}
reservations:
  uneven: {access: {gpu.0: rw, gpu.1: r}, mappings: [{allocation: long}, {allocation: short}]}
regions:
  first: {device: gpu.0, size: 4MiB, chunk: 2MiB, access: {gpu.0: rw}}
  sealed: {device: gpu.0, size: 2MiB, access: {gpu.0: rw, gpu.1: rw}}
  second: {device: gpu.1, size: 2MiB, access: {gpu.1: rw}}
  goes: {device: gpu.1, size: 2MiB, access: {gpu.0: r}}
"""
NEW = OLD.replace("  goes: {", "  comes: {").replace(
    "first: {device: gpu.0, size: 4MiB", "first: {device: gpu.0, size: 6MiB"
)
NEW = NEW.replace("access: {gpu.0: rw}}", "access: {gpu.0: rw, gpu.1: r}}") + "peers: all\n"
ALONE = OLD + "peers: [{device: gpu.1, peer: gpu.0}]\n"


class AddLinks(Change):
    """A change to a plan with links. Its mappings are compared for all devices of the machine."""

    def begin(self) -> Layout:
        layout = super().begin()
        self.rights = self.rights_now()
        return layout

    def rights_now(self) -> dict[str, tuple[str, str]]:
        return {piece["address"]: (piece["readers"], piece["writers"]) for piece in self.sim.ledger()["mappings"]}

    def check(self, state: Layout, error: Error | None, call: str, code: str, lasting: bool) -> None:
        super().check(state, error, call, code, lasting)
        if error is None or state.program is not self.old:
            assert state.drift() == []
            return
        named = {failure.name for failure in failures_of(error)}
        here, now = state._holding.state, self.rights_now()
        for name in (step.name for step in self.old.steps if type(step).__name__ == "Map"):
            address = hex(here.address_of(name))
            assert now[address] == self.rights[address] or (name in named and error.exit_code == 5), f"{name}: {error}"


@pytest.fixture
def opening(sim: Simulator) -> Iterator[Simulator]:
    """HIP 7.2 on four devices, three of them linked, whose links open mappings."""
    machine = Machine.model_validate(MACHINE | {"hip_version": RELEASES[0]})
    quirks = ("set_access_sums_in_heap_order", "peer_access_opens_mappings")
    sim.runtime.set_retry_pause(0)
    sim.runtime.configure(sim_profile(machine) + "".join(f"quirk.{quirk}=1\n" for quirk in quirks))
    yield sim
    sim.runtime.set_retry_pause(1000)


def sealed(layout: Layout) -> None:
    layout.seal("sealed")


CHANGES: dict[str, Callable[[Simulator], AddLinks]] = {
    "links": lambda sim: AddLinks(sim, program_of(OLD), become(OLD + "peers: all\n"), first=sealed),
    "links and more": lambda sim: AddLinks(sim, program_of(OLD), become(NEW)),
    "links to another device": lambda sim: AddLinks(sim, program_of(ALONE), become(OLD + "peers: all\n")),
}


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("mode", [ONCE, FOR_EVER], ids=["once", "for ever"])
def test_a_call_that_fails_leaves_the_rights(what: str, mode: str, opening: Simulator, tmp_path: Path) -> None:
    phase = CHANGES[what](opening)
    calls = calls_of(phase, tmp_path / "trace")
    assert calls.count("hipDeviceEnablePeerAccess") == (1 if "another" in what else 2)
    sweep_codes(phase, calls, mode)


@pytest.mark.parametrize("what", CHANGES)
def test_a_failure_in_the_roll_back_names_what_stays_open(what: str, opening: Simulator, tmp_path: Path) -> None:
    phase = CHANGES[what](opening)
    sweep_undo(phase, calls_of(phase, tmp_path / "trace"), "hipErrorOutOfMemory")
