"""hipplan on the releases of HIP, each with the defects it is known for, as the simulator has them."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hipplan.errors import ApplyError, MachineError
from hipplan.language.loader import load
from hipplan.layout.layout import Layout
from hipplan.layout.options import Options
from hipplan.layout.prepare import prepare
from hipplan.layout.run import run
from hipplan.machines import runtimes
from hipplan.machines.machine import sim_profile
from hipplan.machines.profiles import load_machine
from hipplan.machines.runtimes import choose
from tests.conftest import PLANS, Simulator, keys_of
from tests.faults.harness import FOR_EVER, ONCE, Apply, calls_of, failures_of, sweep

RELEASES = {
    "6.1": "map_failure_hidden unmap_pieces_leaks peer_access_for_all set_access_takes_others_away "
    "free_memory_with_reservation",
    "6.2": "map_failure_hidden unmap_pieces_leaks peer_access_for_all set_access_takes_others_away "
    "unmap_size_unchecked",
    "6.3": "map_failure_hidden unmap_size_unchecked free_interior_pointer",
    "6.4": "map_failure_hidden",
    "7.0": "map_failure_hidden set_access_sums_in_heap_order create_on_current_device peer_access_opens_mappings",
    "7.1": "map_failure_hidden set_access_sums_in_heap_order create_on_current_device peer_access_opens_mappings",
    "7.2": "map_failure_hidden set_access_sums_in_heap_order create_on_current_device peer_access_opens_mappings",
    "7.11": "create_on_current_device",
    "7.14": "create_on_current_device",
    "7.15": "create_on_current_device",
    "7.17": "create_on_current_device",
}
EVERY_RELEASE = "address_free_forgets reserve_ignores_alignment"
UNEVEN: dict[str, Any] = {
    "hipplan": 1,
    "devices": {"gpu": {"count": 2}},
    "allocations": {
        "small": {"device": "gpu.0", "size": "512KiB"},
        "large": {"device": "gpu.1", "size": "8MiB"},
        "other": {"device": "gpu.0", "size": "1MiB", "count": 3},
    },
    "reservations": {
        "range": {
            "access": {"gpu.0": "rw"},
            "mappings": [
                {"allocation": "small"},
                {"allocation": "large", "access": {"gpu.0": "r", "gpu.1": "rw"}},
                {"allocation": "other.0", "access": {}},
                {"allocation": "other.1", "access": {"gpu.1": "r"}},
                {"allocation": "other.2"},
            ],
        }
    },
}
"""Mappings of several sizes and rights in one range: none of them begins where a sum from the first one would end."""

RIGHTS = [(3, 0), (1, 3), (0, 0), (0, 1), (3, 0)]


def shares_rights(release: Simulator) -> bool:
    """Whether two devices may have rights on one mapping: before 6.3 the second takes the first's away."""
    return release.runtime.version >= 60300000


def uneven(release: Simulator) -> dict[str, Any]:
    plan = copy.deepcopy(UNEVEN)
    if not shares_rights(release):
        del plan["reservations"]["range"]["mappings"][1]["access"]["gpu.0"]
    return plan


def rights(release: Simulator) -> list[tuple[int, int]]:
    return RIGHTS if shares_rights(release) else [RIGHTS[0], (0, 3), *RIGHTS[2:]]


def configure(sim: Simulator, release: str, *quirks: str) -> None:
    machine = load_machine("sim-2").model_copy(update={"hip_version": release})
    sim.runtime.configure(sim_profile(machine) + "".join(f"quirk.{quirk}=1\n" for quirk in quirks))


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest, sim: Simulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulator]:
    """The simulator as a release, with its defects."""
    monkeypatch.setattr(runtimes, "_simulated", {})  # other tests must not use this simulator
    imports = "import_by_pointer" if request.param in ("6.1", "6.2", "6.3", "6.4", "7.0") else "import_by_value"
    configure(sim, request.param, *RELEASES[request.param].split(), *EVERY_RELEASE.split(), imports)
    monkeypatch.setattr(runtimes, "_simulator", lambda *_: sim.runtime)
    yield sim
    sim.runtime.arm_faults("")
    sim.free_everything()
    monkeypatch.undo()
    monkeypatch.setattr(runtimes, "_simulated", {})


SHARED_RIGHTS = {"aml-areas", "expert-parallel", "quickstart", "virtual-memory"}
"""Plans in which two devices have rights on one mapping."""


def applied(source: Any, release: Simulator) -> Layout:
    return run(prepare(load(source), choose("sim"), None), release.runtime)


def accesses(layout: Layout) -> list[tuple[int, int]]:
    """What HIP tells of each mapping: the rights of device 0 and of device 1."""
    places = [layout[name].address for name in layout if name.startswith("range[")]
    return [(layout.runtime.access(0, place), layout.runtime.access(1, place)) for place in places]


@pytest.mark.parametrize("plan", PLANS, ids=lambda path: path.stem)
def test_every_plan_is_applied_verified_and_freed(plan: Path, release: Simulator) -> None:
    free = [release.runtime.memory_info(device) for device in (0, 1)]
    if not shares_rights(release) and plan.stem in SHARED_RIGHTS:
        with pytest.raises(MachineError, match="cannot both have access"):
            applied(plan, release)
        return
    with applied(plan, release) as layout:
        assert all(check.ok for check in layout.checks)
        assert layout.drift() == []
    assert release.alive() == set()
    assert [release.runtime.memory_info(device) for device in (0, 1)] == free


def test_mappings_of_any_size_get_their_own_rights(release: Simulator) -> None:
    with applied(uneven(release), release) as layout:
        assert accesses(layout) == rights(release)
    assert release.alive() == set()


def test_mappings_of_any_size_are_added_and_get_their_own_rights(release: Simulator) -> None:
    """Behind what is mapped already: on 7.0 to 7.2 that is the case that needs rights from the base on."""
    less = uneven(release)
    del less["reservations"]["range"]["mappings"][2:]
    less["reservations"]["range"]["size"] = "12MiB"
    del less["allocations"]["other"]
    more = uneven(release)
    more["reservations"]["range"]["size"] = "12MiB"
    with applied(less, release) as layout:
        first = layout["range[0]"].address
        release.runtime.write(first, b"stays")
        layout.update(more)
        assert accesses(layout) == rights(release)
        assert release.runtime.read(first, 5) == b"stays"
        fewer = copy.deepcopy(more)  # the memory stays, but no mapping uses it
        del fewer["reservations"]["range"]["mappings"][2:]
        layout.update(fewer, lose="*")
        layout.update(less, lose="*")
        assert accesses(layout) == rights(release)[:2]
    assert release.alive() == set()


@pytest.mark.parametrize("mode", [ONCE, FOR_EVER])
def test_each_call_fails_in_turn_on_mappings_of_any_size(release: Simulator, mode: str, tmp_path: Path) -> None:
    phase = Apply(release, prepare(load(uneven(release)), choose("sim"), None), {})
    sweep(phase, calls_of(phase, tmp_path / "trace"), "hipErrorUnknown", mode)


def test_memory_is_of_its_own_device_whichever_is_current(release: Simulator) -> None:
    free = [release.runtime.memory_info(device)[0] for device in (0, 1)]
    with applied(uneven(release), release):
        taken = [before - release.runtime.memory_info(device)[0] for device, before in enumerate(free)]
    assert taken == [3 * 2**20 + 2**19, 8 * 2**20] or taken == [4 * 2 * 2**20, 8 * 2**20]


def with_rights(**access: str) -> dict[str, Any]:
    """A mapping with these rights."""
    rights = {name.replace("_", "."): right for name, right in access.items()}
    return {
        "hipplan": 1,
        "devices": {"gpu": {"count": 2}},
        "allocations": {"x": {"device": "gpu.0", "size": "2MiB"}},
        "reservations": {"range": {"mappings": [{"allocation": "x", "access": rights}]}},
    }


def test_rights_move_from_device_to_device(release: Simulator) -> None:
    with applied(with_rights(gpu_0="rw"), release) as layout:
        for access, seen in [
            ({"gpu_1": "rw"}, (0, 3)),
            ({"gpu_0": "r"}, (1, 0)),
            ({}, (0, 0)),
            ({"gpu_1": "r"}, (0, 1)),
        ]:
            layout.update(with_rights(**access), lose="*")
            assert accesses(layout) == [seen]
            assert layout.drift() == []


@pytest.mark.parametrize("release", ["6.1", "6.2", "6.3"], indirect=True)
def test_two_devices_rights_on_one_piece_need_6_3(release: Simulator) -> None:
    region = {
        "device": "gpu.0",
        "access": {"gpu.0": "rw", "gpu.1": "r"},
        "tensors": {"t": {"dtype": "u8", "shape": [64]}},
    }
    plans: list[dict[str, Any]] = [with_rights(gpu_0="rw", gpu_1="r"), {"hipplan": 1, "regions": {"area": region}}]
    for plan in plans:
        if shares_rights(release):
            applied(plan, release).close()
            continue
        with pytest.raises(MachineError, match="cannot both have access") as caught:
            applied(plan, release)
        assert {diagnostic.code for diagnostic in caught.value.diagnostics} == {"HP309"}
        with applied(with_rights(gpu_0="rw"), release) as layout, pytest.raises(MachineError, match="cannot both"):
            layout.update(with_rights(gpu_0="rw", gpu_1="r"))


THEIRS: dict[str, Any] = {
    "hipplan": 1,
    "allocations": {"theirs": {"size": "2MiB", "shareable": "posix_fd", "bind": "theirs"}},
    "reservations": {"range": {"access": {"gpu.0": "rw"}, "mappings": [{"allocation": "theirs"}]}},
}
OURS: dict[str, Any] = {
    "hipplan": 1,
    "allocations": {"ours": {"size": "2MiB", "shareable": "posix_fd"}},
    "reservations": {"range": {"access": {"gpu.0": "rw"}, "mappings": [{"allocation": "ours"}]}},
}


def shared(release: Simulator) -> bytes:
    """What the importer sees of five bytes that the exporter has written."""
    with applied(OURS, release) as exporter:
        release.runtime.write(exporter["range"].address, b"bytes")
        descriptor = exporter.export("ours")
        try:
            program = prepare(load(THEIRS), choose("sim"), None)
            with run(program, release.runtime, Options(bind={"theirs": descriptor})) as importer:
                return release.runtime.read(importer["range"].address, 5)
        finally:
            os.close(descriptor)


def test_memory_is_shared_from_6_2_on_by_each_release_s_meaning_of_the_handle(release: Simulator) -> None:
    if release.runtime.version < 60200000:
        with pytest.raises(MachineError, match="sharing through a file descriptor"):
            shared(release)
        return
    assert shared(release) == b"bytes"


@pytest.mark.parametrize("release", ["7.1"], indirect=True)
@pytest.mark.parametrize("quirk", ["import_by_pointer", "import_by_value"])
def test_7_1_imports_whichever_meaning_it_has(quirk: str, release: Simulator) -> None:
    configure(release, "7.1", quirk)
    assert shared(release) == b"bytes"


def test_a_failed_map_is_noticed_also_where_hip_hides_it(release: Simulator) -> None:
    """Two mappings at one place: this driver call fails for a reason of its own, not by a fault at our table."""
    program = prepare(load(uneven(release)), choose("sim"), None)
    steps = list(program.steps)
    at = next(n for n, step in enumerate(steps) if step.name == "range[1]" and step.call == "hipMemMap")
    steps[at] = replace(steps[at], offset=0)
    with pytest.raises(ApplyError) as caught:
        run(replace(program, steps=tuple(steps)), release.runtime)

    assert caught.value.call in ("hipMemMap", "hipMemSetAccess") or "HP402" in str(caught.value)
    # What HIP says it has mapped and then cannot unmap is reported, with the range that must stay for it.
    assert release.alive() <= keys_of(failures_of(caught.value))
