"""A layout changes in place on real memory: what stays keeps address and bytes, a change that fails leaves no trace."""

from __future__ import annotations

from typing import Any

import pytest

import hipplan
from hipplan.errors import HipplanError, LeakError
from hipplan.layout.layout import Layout
from tests.hardware.machine import MIB, Machine, pattern

CODES = ["hipErrorOutOfMemory", "hipErrorUnknown"]


def plan(machine: Machine, **more: Any) -> dict[str, Any]:
    """A region and a reservation on device 0, which a linked one may read; no mapping takes less than its handle."""
    readers = {f"gpu.{n}": "r" for n in range(1, min(2, machine.count)) if machine.runtime.can_access_peer(n, 0)}
    access = {"gpu.0": "rw", **readers}
    return {
        "hipplan": 1,
        "devices": {"gpu": {"count": 1 + len(readers)}},
        "allocations": {"a": {"device": "gpu.0", "size": "4MiB"}, "b": {"device": "gpu.0", "size": "2MiB"}},
        "reservations": {
            "r": {
                "size": "32MiB",
                "mappings": [{"allocation": "a", "access": access}, {"allocation": "b", "access": access}],
            }
        },
        "regions": {
            "cache": {
                "device": "gpu.0", "size": "8MiB", "chunk": "4MiB", "reserve": "256MiB", "access": access,
                "tensors": {"pages": {"dtype": "u8", "shape": [-1]}},
            }
        },
        "buffers": {"staging": {"kind": "pinned", "size": "1MiB"}},
    } | more  # fmt: skip


def other(machine: Machine) -> dict[str, Any]:
    """`b` recreated in its place, a longer region, another buffer."""
    out = plan(machine)
    out["allocations"]["b"]["size"] = "8MiB"
    out["regions"]["cache"]["size"] = "16MiB"
    out["buffers"] = {"landing": {"kind": "device", "device": "gpu.0", "size": "1MiB"}}
    return out


def apply(machine: Machine, source: Any) -> Layout:
    return hipplan.apply(source, runtime=machine.wanted)


def at(layout: Layout, name: str) -> int:
    return layout[name].address


def test_what_stays_keeps_its_address_and_its_bytes(machine: Machine) -> None:
    old = plan(machine)
    with apply(machine, old) as layout:
        places = {name: at(layout, name) for name in ("r", "r[0]", "cache")}
        first, second = pattern(4 * MIB, 1), pattern(8 * MIB, 2)
        machine.write_by(0, places["r[0]"], first)
        machine.write_by(0, places["cache"], second)
        for source in (other(machine), old, other(machine), old):
            layout.update(source, lose="*")
            assert {name: at(layout, name) for name in places} == places
            assert machine.read_by(0, places["r[0]"], 4 * MIB) == first
            assert machine.read_by(0, places["cache"], 8 * MIB) == second
            assert layout.drift() == []


def test_growing_and_shrinking_at_one_address(machine: Machine) -> None:
    with apply(machine, plan(machine)) as layout:
        base = at(layout, "cache")
        machine.write_by(0, base, pattern(8 * MIB, 3))
        layout.grow("cache", to="64MiB")
        machine.write_by(0, base + 60 * MIB, pattern(4 * MIB, 4))
        assert machine.read_by(0, base + 60 * MIB, 4 * MIB) == pattern(4 * MIB, 4)
        layout.shrink("cache", to="8MiB")
        assert at(layout, "cache") == base
        assert machine.read_by(0, base, 8 * MIB) == pattern(8 * MIB, 3)
        layout.grow("r", by="4MiB")
        machine.write_by(0, at(layout, "r") + 6 * MIB, b"here")
        assert machine.read_by(0, at(layout, "r") + 6 * MIB, 4) == b"here"
        assert layout.drift() == []


def test_more_addresses_behind_a_full_reservation_or_a_clear_error(machine: Machine) -> None:
    """Whether the driver has them free there is its own affair."""
    full = plan(machine)
    full["reservations"]["r"]["size"] = "6MiB"
    with apply(machine, full) as layout:
        base = at(layout, "r")
        try:
            layout.grow("r", by="2MiB")
        except hipplan.ApplyError as error:
            assert error.diagnostics[0].code == "HP420"
            assert layout["r"].size == 6 * MIB
        else:
            assert layout["r"].size == 8 * MIB
            machine.write_by(0, base + 6 * MIB, b"behind")
            assert machine.read_by(0, base + 6 * MIB, 6) == b"behind"
        assert layout.drift() == []


def test_other_memory_under_the_same_addresses(machine: Machine) -> None:
    with apply(machine, plan(machine)) as layout:
        base, content = at(layout, "cache"), pattern(8 * MIB, 5)
        machine.write_by(0, base, content)
        handle = layout._holding.state.handle_of("cache#0")
        layout.remap("cache")
        assert at(layout, "cache") == base
        assert layout._holding.state.handle_of("cache#0") != handle
        assert machine.read_by(0, base, 8 * MIB) == content
        layout.remap("r", keep_bytes=False)
        assert layout.drift() == []


def test_memory_moves_to_another_device_under_its_address(pair: Machine) -> None:
    with apply(pair, plan(pair)) as layout:
        base, content = at(layout, "cache"), pattern(8 * MIB, 6)
        pair.write_by(0, base, content)
        layout.remap("cache", device="gpu.1")
        assert pair.runtime.properties_of(layout._holding.state.handle_of("cache#0")).device == 1
        assert pair.read_by(0, base, 8 * MIB) == content
        assert pair.read_by(1, base, 8 * MIB) == content
        assert layout.drift() == []


def test_other_memory_under_a_part_of_the_addresses(machine: Machine) -> None:
    with apply(machine, plan(machine)) as layout:
        base, content = at(layout, "cache"), pattern(8 * MIB, 8)
        machine.write_by(0, base, content)
        before = [layout._holding.state.handle_of(f"cache#{number}") for number in range(2)]
        layout.remap("cache", part="4MiB..")
        after = [layout._holding.state.handle_of(f"cache#{number}") for number in range(2)]
        assert (after[0] == before[0], after[1] == before[1]) == (True, False)
        assert machine.read_by(0, base, 8 * MIB) == content
        layout.grow("cache", by="4MiB")
        layout.remap("cache", part="8MiB..12MiB", keep_bytes=False)
        assert machine.read_by(0, base, 8 * MIB) == content
        assert layout.drift() == []


def test_a_part_moves_to_another_device_and_back(pair: Machine) -> None:
    access = {"gpu.0": "rw", "gpu.1": "rw"}
    cache = {**plan(pair)["regions"]["cache"], "access": access}
    with apply(pair, plan(pair, regions={"cache": cache})) as layout:
        base, content = at(layout, "cache"), pattern(8 * MIB, 9)
        pair.write_by(0, base, content)
        layout.remap("cache", part="4MiB..", device="gpu.1")
        handles = [layout._holding.state.handle_of(f"cache#{number}") for number in range(2)]
        assert [pair.runtime.properties_of(handle).device for handle in handles] == [0, 1]
        assert pair.read_by(0, base, 8 * MIB) == content
        assert pair.read_by(1, base, 8 * MIB) == content
        pair.write_by(1, base + 4 * MIB, content[: 4 * MIB])
        pair.runtime.arm_faults("hipMemSetAccess@2=hipErrorUnknown")
        with pytest.raises(HipplanError, match="hipMemSetAccess"):
            layout.remap("cache", part="4MiB..", device="gpu.0")
        pair.disarm()
        assert layout["cache"].devices == ("gpu.0", "gpu.1")
        assert layout.drift() == []
        layout.remap("cache", part="4MiB..", device="gpu.0")
        assert layout["cache"].devices == ("gpu.0",)
        assert pair.read_by(0, base, 8 * MIB) == content[: 4 * MIB] * 2
        assert layout.drift() == []


def test_sealed_memory_keeps_its_bytes_and_everybody_may_only_read(machine: Machine) -> None:
    with apply(machine, plan(machine)) as layout:
        base, content = at(layout, "cache"), pattern(MIB, 7)
        machine.write_by(0, base, content)
        layout.seal("cache")
        assert {machine.runtime.access(device, base) for device in layout.program.devices.values()} == {1}
        assert machine.read_by(0, base, MIB) == content
        layout.unseal("cache")
        assert machine.runtime.access(0, base) == 3
        machine.write_by(0, base, b"again")


def test_a_plan_seals_what_it_fills(machine: Machine) -> None:
    machine.wavers()
    sealed = plan(machine, contents={"cache.pages": {"value": 7}, "r[0]": {"value": 8}})
    sealed["regions"]["cache"]["seal"] = sealed["reservations"]["r"]["seal"] = True
    with apply(machine, sealed) as layout:
        devices = layout.program.devices.values()
        for name, value in (("cache", b"\7"), ("r", b"\x08")):
            assert {machine.runtime.access(device, at(layout, name)) for device in devices} == {1}
            assert machine.read_by(0, at(layout, name), 4 * MIB) == value * (4 * MIB)
        assert layout.drift() == []
        sealed["regions"]["cache"]["size"] = "16MiB"
        layout.update(sealed)
        assert machine.read_by(0, at(layout, "cache") + 8 * MIB, 8 * MIB) == b"\7" * (8 * MIB)
        assert {machine.runtime.access(device, at(layout, "cache") + 8 * MIB) for device in devices} == {1}
        layout.unseal("cache")
        assert machine.runtime.access(0, at(layout, "cache")) == 3
        machine.write_by(0, at(layout, "cache"), b"again")
        assert layout.drift() == []


@pytest.mark.in_parts
@pytest.mark.parametrize("code", CODES)
def test_a_call_that_fails_leaves_the_old_or_the_new(code: str, machine: Machine) -> None:
    """Every call of an update, once each."""
    content, old, new = pattern(64 * 1024, 8), plan(machine), other(machine)
    n, fired = 0, 1
    while fired:
        n += 1
        layout = apply(machine, old)
        places = {name: at(layout, name) for name in ("r", "r[1]", "cache")}
        for address in places.values():
            machine.write_by(0, address, content)
        machine.runtime.arm_faults(f"*@{n}={code}")
        error: HipplanError | None = None
        try:
            layout.update(new, lose="*")
        except HipplanError as raised:
            error = raised
        fired = machine.runtime.faults_fired()
        machine.disarm()
        assert {name: at(layout, name) for name in places} == places
        assert layout.drift() == []
        assert machine.read_by(0, places["cache"], len(content)) == content
        if error is None or isinstance(error, LeakError):
            assert "landing" in layout
        else:
            assert "landing" not in layout
            assert machine.read_by(0, places["r[1]"], len(content)) == content
        layout.close()
        undone = getattr(error, "undone", None)
        machine.free_retired(() if undone is None else undone.failures)
    assert n > 40
