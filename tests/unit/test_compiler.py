"""compile(): the order of steps, sizes and places; pure and deterministic."""

from __future__ import annotations

import io
from typing import Any

import pytest

from hipplan.errors import MachineError
from hipplan.kinds.allocation.live import CreateAllocation
from hipplan.kinds.managed.live import Advise, AttachStream, Prefetch
from hipplan.kinds.mapping.live import Map, SetAccess
from hipplan.kinds.peer.live import EnablePeer
from hipplan.kinds.pinned.live import CreatePinnedBuffer
from hipplan.kinds.registered.live import RegisterBuffer
from hipplan.kinds.reservation.live import Reserve
from hipplan.kinds.stream.live import AwaitStream
from hipplan.language.loader import load
from hipplan.lowering.compiler import compile as compile_plan
from hipplan.machines.machine import Machine
from hipplan.machines.profiles import load_machine
from hipplan.program import steps
from hipplan.program.program import Program
from tests.conftest import PLANS

GIB = 2**30
MIB = 2**20


def machine(**changes: Any) -> Machine:
    """sim-2 with other figures on every device, or of the machine itself."""
    base = load_machine("sim-2")
    own = {key: value for key, value in changes.items() if key in Machine.model_fields}
    device = {key: value for key, value in changes.items() if key not in own}
    devices = [one.model_copy(update=device) for one in base.devices]
    return base.model_copy(update={"devices": devices, **own})


def compiled(plan: dict[str, Any], on: Machine | None = None) -> Program:
    return compile_plan(load({"hipplan": 1, **plan}), on or load_machine("sim-2"))


def codes(plan: dict[str, Any], on: Machine | None = None) -> list[str]:
    with pytest.raises(MachineError) as caught:
        compiled(plan, on)
    return [diagnostic.code for diagnostic in caught.value.diagnostics]


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_the_same_input_gives_the_same_program(path: Any) -> None:
    first = compile_plan(load(path), load_machine("sim-2"))

    assert first == compile_plan(load(path), load_machine("sim-2"))


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_steps_never_name_what_does_not_exist_yet(path: Any) -> None:
    made: set[str] = set()
    for step in compile_plan(load(path), load_machine("sim-2")).steps:
        needs = {getattr(step, field, "") for field in ("reservation", "allocation", "stream")} - {""}
        if isinstance(step, (SetAccess, Advise, Prefetch, AttachStream)):
            needs.add(step.name)
        assert needs <= made
        made.add(step.name)


def test_a_size_is_padded_to_the_granularity_and_the_waste_is_shown() -> None:
    plan = {"allocations": {"a": {"size": "3MiB"}, "b": {"size": "3MiB", "granularity": "minimum"}}}
    program = compiled(plan, machine(granularity_recommended=2 * MIB))
    a, b = program.resources

    assert (a.asked, a.size, a.waste) == (3 * MIB, 4 * MIB, MIB)
    assert (b.asked, b.size, b.waste) == (3 * MIB, 3 * MIB, 0)
    assert program.bytes_by_device() == {"gpu.0": 7 * MIB}


def test_a_mapping_without_a_place_follows_the_padded_one_before_it() -> None:
    plan = {
        "allocations": {"a": {"size": "3MiB", "count": 2}},
        "reservations": {"r": {"mappings": [{"allocation": "a.*"}]}},
    }
    program = compiled(plan, machine(granularity_recommended=2 * MIB))
    maps = [step for step in program.steps if isinstance(step, Map)]

    assert [(one.offset, one.size) for one in maps] == [(0, 4 * MIB), (4 * MIB, 4 * MIB)]
    assert next(s for s in program.steps if isinstance(s, Reserve)).size == 8 * MIB


def test_access_is_one_call_a_mapping_for_all_devices() -> None:
    plan = {
        "devices": {"gpu": {"count": 2}},
        "allocations": {"a": {"size": "2MiB"}},
        "reservations": {"r": {"access": {"gpu.0": "rw", "gpu.1": "r"}, "mappings": [{"allocation": "a"}]}},
    }
    access = [step for step in compiled(plan).steps if isinstance(step, SetAccess)]

    assert [item.rights for item in access] == [((0, "rw"), (1, "r"))]


def test_an_alignment_reserves_room_for_an_aligned_base() -> None:
    plan = {"reservations": {"r": {"size": "4MiB", "alignment": "2MiB"}}}
    (reserve,) = compiled(plan).steps

    assert isinstance(reserve, Reserve)
    assert (reserve.size, reserve.slack) == (4 * MIB, 2 * MIB)


@pytest.mark.parametrize(
    ("on", "alignment", "slack"),
    [
        (machine(granularity_minimum=2 * MIB), 64 * 1024, 2 * MIB),  # what is reserved is of the granularity, on CUDA
        (machine(granularity_minimum=4096), 64 * 1024, 64 * 1024),
        (machine(hip_version="6.1.0"), 512, 0),  # which refuses an alignment below its granularity
    ],
)
def test_an_alignment_that_is_no_multiple_of_the_granularity(on: Machine, alignment: int, slack: int) -> None:
    mapped = {"allocations": {"a": {"size": "2MiB"}}, "reservations": {"r": {"mappings": [{"allocation": "a"}]}}}
    mapped["reservations"]["r"]["alignment"] = alignment
    reserve = next(step for step in compiled(mapped, on).steps if isinstance(step, Reserve))

    assert (reserve.alignment, reserve.slack) == (max(alignment, 4096), slack)


def test_all_peers_are_directed_links() -> None:
    plan = {"devices": {"gpu": {"count": 2}}, "peers": "all", "buffers": {"b": {"kind": "device", "size": 4096}}}
    links = [(s.device, s.peer) for s in compiled(plan).steps if isinstance(s, EnablePeer)]

    assert links == [(0, 1), (1, 0)]


def test_pinned_memory_has_the_flags_that_the_plan_says() -> None:
    plan = {"buffers": {"b": {"kind": "pinned", "size": 4096, "portable": True, "mapped": True, "coherent": False}}}
    (create,) = compiled(plan).steps

    assert isinstance(create, CreatePinnedBuffer)
    assert create.flags == ("portable", "mapped", "non_coherent")


def test_advice_has_hip_s_values_and_ranges_in_bytes() -> None:
    advice = [{"advise": "preferred_location", "device": "host", "range": {"at": "1MiB"}}]
    plan = {"buffers": {"b": {"kind": "managed", "size": "4MiB", "advice": advice}}}
    advise = compiled(plan).steps[1]

    assert isinstance(advise, Advise)
    assert (advise.advice, advise.device, advise.offset, advise.size) == (
        "preferred_location",
        steps.CPU_ORDINAL,
        MIB,
        3 * MIB,
    )


def test_a_null_stream_is_that_of_where_the_memory_goes() -> None:
    fetched = [{"to": to} for to in ("gpu.1", "host", "gpu.1")] + [{"to": "gpu.0", "stream": "s"}]
    managed = {"kind": "managed", "size": "1MiB", "prefetch": fetched, "attach_to": {"stream": "s"}}
    streams = {"s": {"device": "gpu.1"}}
    program = compiled({"devices": {"gpu": {"count": 2}}, "streams": streams, "buffers": {"m": managed}})
    on = [step.on for step in program.steps if isinstance(step, Prefetch)]
    waits = [(step.name, step.on) for step in program.steps if isinstance(step, AwaitStream)]

    assert on == [1, 0, 1, 1]
    assert waits == [("s", 1), ("", 1), ("", 0)]


def test_host_memory_has_the_granularity_that_the_machine_reports() -> None:
    on_host = {"allocations": {"a": {"device": "host", "size": "4KiB"}}}
    sizes = [
        compiled(on_host, machine(host_granularity=granularity)).resources[0].size for granularity in (None, 2 * MIB)
    ]

    assert sizes == [4096, 2 * MIB]


def test_a_file_is_looked_for_beside_the_plan(tmp_path: Any) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("hipplan: 1\nbuffers:\n  d: {kind: registered, file: data.bin}\n")
    (register,) = compile_plan(load(path), load_machine("sim-2")).steps

    assert isinstance(register, RegisterBuffer)
    assert register.file == str(tmp_path / "data.bin")


TWO = {"devices": {"gpu": {"count": 2}}}
SHARED = {"allocations": {"a": {"size": "2MiB", "shareable": "posix_fd"}}}
PEERS = {**TWO, "peers": "all", "buffers": {"b": {"kind": "device", "size": 4096}}}
CROSS = {
    **TWO,
    "allocations": {"a": {"device": "gpu.0", "size": "2MiB"}},
    "reservations": {"r": {"mappings": [{"allocation": "a", "access": {"gpu.1": "rw"}}]}},
}
MANAGED = {"buffers": {"b": {"kind": "managed", "size": 4096}}}
AT = {
    "allocations": {"a": {"size": "2MiB"}},
    "reservations": {"r": {"mappings": [{"allocation": "a", "at": "1MiB"}]}},
}
LOADED = {"buffers": {"b": {"kind": "device", "size": "1GiB"}}, "contents": {"b": {"file": "b.bin"}}}
HOST = {"allocations": {"a": {"device": "host", "size": "2MiB"}}}
SEEN = {
    "allocations": {"a": {"size": "2MiB"}},
    "reservations": {"r": {"mappings": [{"allocation": "a", "access": {"host": "rw"}}]}},
}
PART = {
    "allocations": {"a": {"size": "4MiB"}},
    "reservations": {"r": {"mappings": [{"allocation": "a", "size": "2MiB"}]}},
}


@pytest.mark.parametrize(
    ("code", "plan", "on"),
    [
        ("HP301", {"allocations": {"a": {"size": "193GiB"}}}, machine()),
        ("HP301", {"allocations": {"a": {"size": "100GiB"}}}, machine(in_use=100 * GIB)),
        ("HP301", {"buffers": {"b": {"kind": "device", "size": "193GiB"}}}, machine()),
        ("HP302", AT, machine(granularity_minimum=2 * MIB)),
        ("HP302", {"reservations": {"r": {"size": "4MiB", "address": 4097}}}, machine()),
        ("HP302", {"regions": {"r": {"size": 2**64 - 1}}}, machine(memory=None)),
        ("HP302", {"regions": {"r": {"size": 2**63, "alignment": 2**63}}}, machine(memory=None)),
        ("HP302", {"allocations": {"a": {**SHARED["allocations"]["a"], "bind": "a", "size": 2**64 - 1}}}, machine()),
        ("HP303", {"buffers": {"b": {"kind": "pinned", "size": "2TiB"}}}, machine()),
        ("HP303", {"buffers": {"b": {"kind": "managed", "size": "2TiB"}}}, machine(xnack=False)),
        ("HP303", LOADED, machine(host_memory=8 * MIB)),
        ("HP304", {"allocations": {"a": {"size": "2MiB"}}}, machine(vmm=False)),
        ("HP305", MANAGED, machine(managed=False)),
        ("HP306", PEERS, load_machine("sim-2-unlinked")),
        ("HP307", CROSS, load_machine("sim-2-unlinked")),
        ("HP309", HOST, machine(hip_version="7.0.0")),
        (
            "HP309",
            {"allocations": {"a": {"device": "host", "numa_node": 0, "size": 4096}}},
            machine(hip_version="7.2.0"),
        ),
        ("HP309", SHARED, machine(hip_version="6.1.0")),
        ("HP309", SHARED, machine(shareable_posix_fd=False)),
        ("HP309", PART, machine(runtime="cuda")),
        ("HP309", SEEN, machine(hip_version="7.1.0")),
        ("HP309", SEEN, machine(hip_version="7.15.0", runtime="cuda")),
        ("HP309", {"allocations": {"a": {"size": 4096, "type": "uncached"}}}, machine(hip_version="6.3.0")),
        ("HP310", {"devices": {"gpu": {"count": 3}}}, machine()),
        ("HP310", {"devices": {"a": {"pci": "0000:99:00.0"}}}, machine()),
        ("HP310", {"devices": {"a": {"ordinal": 0}, "b": {"current": True}}}, machine()),
        ("HP311", {"devices": {"gpu": {"arch": "gfx90a"}}}, machine()),
        ("HP312", {"requires": {"hip": ">=8"}}, machine()),
        ("HP313", {"devices": {"gpu": {}}, "requires": {"xnack": True}}, machine(xnack=False)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_preflight_refuses(code: str, plan: dict[str, Any], on: Machine) -> None:
    assert set(codes(plan, on)) == {code}


@pytest.mark.parametrize(
    ("code", "on"),
    [
        ("HP304", machine(vmm=False)),
        ("HP307", load_machine("sim-2-unlinked")),
        ("HP309", machine(shareable_posix_fd=False)),
    ],
)
def test_what_one_line_makes_is_refused_once(code: str, on: Machine) -> None:
    plan = {
        **TWO,
        "allocations": {"a": {"device": "gpu.0", "size": "2MiB", "count": 3, "shareable": "posix_fd"}},
        "reservations": {"r": {"mappings": [{"allocation": "a.*", "access": {"gpu.1": "rw"}}]}},
    }

    assert codes(plan, on) == [code]


@pytest.mark.parametrize(("runtime", "expected"), [("amd", ["HP308"]), ("sim", ["HP308"]), ("cuda", [])])
def test_descriptors_are_counted_where_each_allocation_takes_one(runtime: str, expected: list[str]) -> None:
    few = machine(runtime=runtime, limits=load_machine("sim-2").limits.model_copy(update={"open_files": 100}))
    plan = {"allocations": {"a": {"size": 4096, "count": 50}}}

    if expected:
        assert codes(plan, few) == expected
    else:
        assert len(compiled(plan, few).steps) == 50


def test_a_plan_that_takes_no_descriptor_needs_none() -> None:
    none_left = machine(runtime="sim", limits=load_machine("sim-2").limits.model_copy(update={"open_files": 10}))

    assert len(compiled({"buffers": {"b": {"kind": "device", "size": 4096}}}, none_left).steps) == 1


def test_what_cannot_hold_the_memory_that_moves_bytes_is_reported_at_the_contents() -> None:
    small = machine(host_memory=8 * MIB)
    with pytest.raises(MachineError) as caught:
        compiled(LOADED, small)
    (diagnostic,) = caught.value.diagnostics
    assert "16MiB" in diagnostic.summary
    assert "contents" in diagnostic.why


def test_managed_memory_that_migrates_is_not_the_hosts() -> None:
    plan = {"buffers": {"b": {"kind": "managed", "size": "2TiB"}}}

    for on in (machine(xnack=True), machine(xnack=False, runtime="cuda")):
        assert compiled(plan, on).warnings == ()


def test_memory_that_is_imported_is_there_already() -> None:
    plan = {"allocations": {"a": {"size": "120GiB", "shareable": "posix_fd", "bind": "a"}}}
    full = machine(in_use=120 * GIB)

    assert compiled(plan, full).bytes_by_device() == {"gpu.0": 0}


def test_unknown_figures_are_not_held_against_a_plan() -> None:
    unknown = machine(memory=None, vmm=None, granularity_minimum=None, granularity_recommended=None)
    program = compiled({"allocations": {"a": {"size": "1MiB"}}}, unknown)

    assert program.resources[0].size == 2 * MIB
    assert compiled(SEEN, machine(hip_version=None)).resources


def test_all_reasons_come_at_once() -> None:
    plan = {**PEERS, "allocations": {"a": {"size": "193GiB"}}}

    assert codes(plan, load_machine("sim-2-unlinked")) == ["HP301", "HP306", "HP306"]


def test_an_arch_may_name_features() -> None:
    plan = {"devices": {"gpu": {"arch": "gfx942:xnack-"}}, "buffers": {"b": {"kind": "device", "size": 4096}}}

    assert compiled(plan, machine(arch="gfx942:sramecc+:xnack-")).devices == {"gpu": 0}


@pytest.mark.parametrize(
    ("size", "count", "warned"),
    [("1MiB", 15, False), ("1MiB", 16, True), ("15MiB", 16, False), ("1793KiB", 128, False), ("1792KiB", 128, True)],
)
def test_padding_is_worth_a_word_from_a_size_and_a_share_on(size: str, count: int, warned: bool) -> None:
    """16 MiB in all, and an eighth of what is taken; at a granularity of 2 MiB."""
    reservations = {"r": {"access": {"gpu.0": "rw"}, "mappings": [{"allocation": "a.*"}]}}
    plan = {"allocations": {"a": {"size": size, "count": count}}, "reservations": reservations}
    program = compiled(plan, machine(granularity_recommended=2 * MIB))

    assert [warning.code for warning in program.warnings] == ["HP254"] * warned


def test_padding_of_a_single_object_is_in_the_singular() -> None:
    reservations = {"r": {"access": {"gpu.0": "rw"}, "mappings": [{"allocation": "a"}]}}
    plan = {"allocations": {"a": {"size": "1MiB"}}, "reservations": reservations}
    (warning,) = compiled(plan, machine(granularity_recommended=64 * MIB)).warnings

    assert warning.why == "an allocation of 1MiB takes 64MiB"


@pytest.mark.parametrize(
    ("where", "location"),
    [
        ({"device": "gpu.1"}, ("device", 1)),
        ({"device": "host"}, ("host", 0)),
        ({"device": "host", "numa_node": 1}, ("host_numa", 1)),
    ],
)
def test_where_an_allocation_is(where: dict[str, Any], location: tuple[str, int]) -> None:
    """What kind of place, and its number: a device, the host, a NUMA node of the host."""
    program = compiled({"allocations": {"a": {"size": "2MiB", **where}}}, machine(hip_version="10.0.0"))
    (step,) = program.steps

    assert isinstance(step, CreateAllocation)
    assert (step.location, step.device) == location


@pytest.mark.parametrize(
    ("text", "line", "name"),
    [
        ("buffers:\n  b: {kind: device, size: 1, device: gpu.7}\n", 3, "gpu.7"),
        ("reservations:\n  r:\n    size: 1GiB\n    access:\n      gpu.1: r\n      gpu.5: rw\n", 7, "gpu.5"),
        ("buffers:\n  m:\n    kind: managed\n    size: 1\n    prefetch:\n      - {to: gpu.2}\n", 7, "gpu.2"),
        ("devices: {gpu: {count: 8}}\n", 2, "gpu.2"),
    ],
)
def test_a_device_that_the_machine_lacks_is_reported_where_it_is_named(text: str, line: int, name: str) -> None:
    with pytest.raises(MachineError) as caught:
        compile_plan(load(io.StringIO(f"hipplan: 1\n{text}")), load_machine("sim-2"))

    (missing,) = caught.value.diagnostics
    assert missing.summary == f"there is no device {name[4:]} for '{name}'"
    assert missing.span is not None and missing.span.line == line
