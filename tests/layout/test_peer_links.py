"""Peer links on HIP 7.0 to 7.2, where they open mappings: their layout's are closed again, others stay."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

import hipplan
from hipplan.errors import ApplyError
from hipplan.kinds.mapping.live import Map
from hipplan.kinds.peer.live import EnablePeer
from hipplan.layout.layout import Layout
from hipplan.lowering.compiler import compile as compile_plan
from hipplan.lowering.compiler import compile_change
from hipplan.lowering.lowered import lower
from hipplan.machines.machine import Machine, sim_profile
from tests.conftest import Simulator

LINKED: dict[str, Any] = {"name": "GPU", "arch": "gfx942", "memory": "16GiB", "vmm": True}
MACHINE: dict[str, Any] = {
    "name": "three-linked-and-one-apart",
    "hip_version": "7.2.53211",
    "devices": [LINKED] * 4,
    "meshes": [{"devices": [0, 1, 2], "type": "xgmi", "hops": 1}],
}
BASE: dict[str, Any] = {"hipplan": 1, "devices": {"gpu": {"count": 2}}}
PEERS = BASE | {"name": "linked", "peers": "all"}


def with_region(**access: str) -> dict[str, Any]:
    """A plan with a region on gpu.0; gpu_0="rw" is an access."""
    given = {who.replace("_", "."): right for who, right in access.items()}
    return BASE | {"name": "first", "regions": {"w": {"device": "gpu.0", "size": "2MiB", "access": given}}}


OWN = with_region(gpu_0="rw")


@pytest.fixture
def opening(sim: Simulator) -> Simulator:
    """HIP 7.2 on four devices, three of them linked, whose links open mappings."""
    sim.runtime.configure(sim_profile(Machine.model_validate(MACHINE)) + "quirk.peer_access_opens_mappings=1\n")
    return sim


def rights(layout: Layout, name: str = "w") -> list[int]:
    """Of each device of the machine."""
    return [layout.runtime.access(device, layout[name].address) for device in range(4)]


@pytest.mark.parametrize("given", [{"gpu_0": "rw"}, {"gpu_0": "rw", "gpu_1": "r"}, {"gpu_1": "r"}], ids=str)
def test_an_update_that_adds_links_widens_no_right(given: dict[str, str], opening: Simulator) -> None:
    """Not even that of a device which the plan does not name."""
    plan = with_region(**given)
    with hipplan.apply(plan, runtime="sim") as layout:
        before = rights(layout)
        layout.update(plan | {"peers": "all"})
        assert rights(layout) == before
        assert layout.drift() == []


def test_sealed_memory_stays_sealed_in_an_update_that_adds_links(opening: Simulator) -> None:
    plan = with_region(gpu_0="rw", gpu_1="rw") | {"contents": {"w": {"value": 7}}}
    plan["regions"]["w"]["seal"] = True
    with hipplan.apply(plan, runtime="sim") as layout:
        assert layout.update(plan | {"peers": "all"})
        assert rights(layout) == [1, 1, 0, 0]
        layout.unseal("w")
        assert rights(layout) == [3, 3, 0, 0]


def test_rights_are_set_around_the_links_before_everything_else() -> None:
    machine = Machine.model_validate(MACHINE)
    new = OWN | {
        "peers": "all",
        "allocations": {"more": {"size": "2MiB"}},
        "reservations": {"r": {"mappings": [{"allocation": "more"}]}},
    }
    change = compile_change(compile_plan(OWN, machine), hipplan.load(new), machine)
    assert [step.call for step in change.all_steps][:2] == ["hipDeviceEnablePeerAccess"] * 2
    change = lower(change, change.old).lowered
    calls = [(step.call, step.name) for step in change.all_steps]
    kept, links = ("hipMemSetAccess", "w[0]"), ["gpu.0->gpu.1", "gpu.1->gpu.0"]
    assert calls[:4] == [kept, *(("hipDeviceEnablePeerAccess", link) for link in links), kept]
    assert ("hipMemMap", "r[0]") in calls[4:]
    assert change.all_steps[0].describe() == "device 1: none, device 2: none stays"


@pytest.mark.parametrize("version", ["6.4.43484", "7.2.53211", "7.3.0"])
def test_links_come_before_mappings(version: str) -> None:
    machine = Machine.model_validate(MACHINE | {"hip_version": version})
    program = compile_plan(OWN | {"peers": "all"}, machine)
    change = compile_change(compile_plan(PEERS | {"peers": []}, machine), hipplan.load(OWN | {"peers": "all"}), machine)
    for made in (program.steps, change.all_steps, lower(change, change.old).lowered.all_steps):
        kinds = [type(step) for step in made]
        assert kinds.index(Map) > max(at for at, kind in enumerate(kinds) if kind is EnablePeer)


@pytest.mark.parametrize("version", ["6.4.43484", "7.3.0"])
def test_other_releases_set_no_rights_again(version: str) -> None:
    machine = Machine.model_validate(MACHINE | {"hip_version": version})
    change = compile_change(compile_plan(OWN, machine), hipplan.load(OWN | {"peers": "all"}), machine)
    assert [step.call for step in change.all_steps] == ["hipDeviceEnablePeerAccess"] * 2
    assert lower(change, change.old).lowered is change


def test_a_link_that_would_open_the_mapping_of_another_layout_is_refused(opening: Simulator) -> None:
    with hipplan.apply(OWN, runtime="sim") as layout, hipplan.apply(BASE, runtime="sim") as other:
        before = opening.alive()
        with pytest.raises(
            ApplyError, match=r"HP424.*gpu\.1->gpu\.0 would open 'w\[0\]' of the layout 'first'"
        ) as caught:
            hipplan.apply(PEERS, runtime="sim")
        with pytest.raises(ApplyError, match=r"(?s)HP424.*device 1 \(now: none\), device 2 \(now: none\)"):
            other.update(PEERS)
        assert caught.value.exit_code == 4
        assert opening.alive() == before
        assert rights(layout) == [3, 0, 0, 0]
        layout.close()
        assert other.update(PEERS)


@pytest.mark.parametrize(
    "given", [{"gpu_0": "rw", "gpu_1": "rw", "gpu_2": "rw"}, {}], ids=["rw for all", "links to others"]
)
def test_a_link_that_opens_nothing_is_made(given: dict[str, str], opening: Simulator) -> None:
    """All linked devices have rw already; or the link is to a device of which nothing is mapped."""
    first = with_region(**(given or {"gpu_0": "rw"})) | {"devices": {"gpu": {"count": 3}}}
    link = {"peers": "all"} if given else {"peers": [{"device": "gpu.0", "peer": "gpu.1"}]}
    with hipplan.apply(first, runtime="sim") as layout, hipplan.apply(BASE | link, runtime="sim"):
        assert layout.drift() == []


def test_a_layout_with_links_leaves_room_for_others_with_links(opening: Simulator) -> None:
    """What is mapped beside a link to its device stays closed; the link lasts as long as a layout has it."""
    linked = OWN | {"peers": "all"}
    with hipplan.apply(linked, runtime="sim") as first, hipplan.apply(linked, runtime="sim") as second:
        first.close()
        second.update(linked | {"buffers": {"b": {"kind": "device", "device": "gpu.0", "size": "1MiB"}}})
        second.remap("w")
        with hipplan.apply(PEERS, runtime="sim"), hipplan.apply(OWN, runtime="sim") as third:
            assert second.drift() == third.drift() == []
            assert rights(second) == rights(third) == [3, 0, 0, 0]


def mapped_at(address: int, device: str, access: dict[str, str]) -> dict[str, Any]:
    place = {"address": address, "address_policy": "exact", "mappings": [{"allocation": "a", "access": access}]}
    devices = {"devices": {"gpu": {"count": 3}}}
    return (
        BASE
        | devices
        | {"name": device, "allocations": {"a": {"device": device, "size": "2MiB"}}, "reservations": {"r": place}}
    )


@pytest.mark.parametrize("hole", ["0", "2MiB"])
def test_a_mapping_behind_one_that_is_opened_counts_too(hole: str, opening: Simulator) -> None:
    """It may be of another device, range and layout."""
    start, everybody = 0x7E0000000000, {f"gpu.{n}": "rw" for n in range(3)}
    behind = start + 2**21 * (2 if hole != "0" else 1)
    refused = pytest.raises(ApplyError, match=r"would open 'r\[0\]' of the layout 'gpu\.1'")
    with (
        hipplan.apply(mapped_at(start, "gpu.0", everybody), runtime="sim"),
        hipplan.apply(mapped_at(behind, "gpu.1", {"gpu.1": "rw"}), runtime="sim") as layout,
        refused if hole == "0" else nullcontext(),
        hipplan.apply(BASE | {"peers": [{"device": "gpu.1", "peer": "gpu.0"}]}, runtime="sim"),
    ):
        assert layout.drift() == []


def test_rights_that_cannot_be_set_again_are_not_opened(opening: Simulator) -> None:
    """7.0 to 7.2 may refuse hipMemSetAccess where mappings differ in size and have a hole between them."""
    mappings = [{"allocation": "long", "at": 0}, {"allocation": "short", "at": "8MiB"}]
    allocations = {"long": {"device": "gpu.0", "size": "4MiB"}, "short": {"device": "gpu.0", "size": "2MiB"}}
    closed = BASE | {"allocations": allocations, "reservations": {"r": {"size": "16MiB", "mappings": mappings}}}
    with hipplan.apply(closed, runtime="sim") as layout:
        before = opening.alive()
        with pytest.raises(ApplyError, match=r"(?s)HP424.*mappings of 'r' differ in size"):
            layout.update(closed | {"peers": "all"})
        assert opening.alive() == before
        assert [rights(layout, name) for name in ("r[0]", "r[1]")] == [[0, 0, 0, 0]] * 2
