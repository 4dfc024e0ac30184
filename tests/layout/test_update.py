"""layout.update(): whatever one plan is and another one wants, the layout is then what a fresh apply would give."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hipplan
from hipplan import _core
from hipplan.errors import ApplyError, LayoutInUse, LeakError, MachineError, PlanError
from hipplan.kinds.allocation.live import CreateAllocation
from hipplan.kinds.managed.live import CreateManagedBuffer
from hipplan.kinds.reservation.live import Reserve
from hipplan.language.loader import load
from hipplan.layout.layout import Layout
from hipplan.lowering.compiler import compile_change
from hipplan.lowering.pieces import whole_name
from hipplan.machines.profiles import load_machine
from hipplan.program.difference import Difference
from tests.conftest import ROOT, WHOLE, Simulator
from tests.faults.change import facts, writable
from tests.faults.harness import DEFECTS, as_release

MIB = 2**20
DEVICES = ["gpu.0", "gpu.1"]
BASE: dict[str, Any] = {"hipplan": 1, "devices": {"gpu": {"count": 2}}}
TWO = BASE | {
    "allocations": {"a": {"device": "gpu.0", "size": "2MiB"}, "b": {"device": "gpu.1", "size": "2MiB"}},
    "reservations": {
        "r": {
            "size": "16MiB",
            "access": {"gpu.0": "rw", "gpu.1": "rw"},
            "mappings": [{"allocation": "a", "at": 0}, {"allocation": "b", "at": "4MiB"}],
        }
    },
    "buffers": {"staging": {"kind": "pinned", "size": "1MiB"}},
}

rights = st.dictionaries(st.sampled_from(DEVICES), st.sampled_from(["r", "rw"]), max_size=2)
devices = st.sampled_from(DEVICES)
sizes = st.sampled_from(["2MiB", "4MiB"])


@st.composite
def plans(draw: st.DrawFn) -> dict[str, Any]:
    """Small plans over the same few names, so that two of them have much in common."""
    out: dict[str, Any] = dict(BASE)
    allocations = {n: {"device": draw(devices), "size": draw(sizes)} for n in draw(st.sets(st.sampled_from("abc")))}
    if allocations:
        out["allocations"] = allocations
    if draw(st.booleans()):
        mappings = [
            {"allocation": draw(st.sampled_from(sorted(allocations))), "at": f"{at}MiB", "access": draw(rights)}
            for at in (draw(st.sets(st.sampled_from([0, 4, 8, 12]))) if allocations else ())
        ]
        out["reservations"] = {"r": {"size": draw(st.sampled_from(["16MiB", "32MiB"])), "mappings": mappings}}
    buffers: dict[str, Any] = {}
    if draw(st.booleans()):
        buffers["x"] = {"kind": draw(st.sampled_from(["device", "pinned"])), "size": draw(sizes)}
    if draw(st.booleans()):
        kinds = st.sampled_from(["read_mostly", "preferred_location", "accessed_by"])
        ranges = st.sampled_from([None, {"at": 0, "size": "1MiB"}, {"at": "1MiB", "size": 5000}])
        advice = [
            {"advise": kind, **({} if kind == "read_mostly" else {"device": draw(devices)}),
             **({"range": part} if (part := draw(ranges)) else {})}
            for kind in draw(st.lists(kinds, max_size=4))
        ]  # fmt: skip
        buffers["m"] = {"kind": "managed", "size": "2MiB", "advice": advice}
        if draw(st.booleans()):
            buffers["m"]["prefetch"] = [{"to": draw(devices)}]
    if buffers:
        out["buffers"] = buffers
    if draw(st.booleans()):
        size = draw(st.sampled_from(["2MiB", "6MiB"]))
        tensors = {"t": {"dtype": "u8", "shape": [-1]}}
        out["regions"] = {"g": {"device": draw(devices), "size": size, "chunk": "2MiB", "tensors": tensors,
                                "reserve": "32MiB", "access": draw(rights) or {"gpu.0": "r"}}}  # fmt: skip
    if draw(st.booleans()):
        out["peers"] = [{"device": "gpu.0", "peer": "gpu.1"}]
    return out


def rights_of(sim: Simulator, layout: Layout) -> dict[str, set[tuple[Any, ...]]]:
    """Of each mapping. How many pieces it has on 7.0 to 7.2 depends on the layout that it was made from."""
    collected: dict[str, set[tuple[Any, ...]]] = {}
    for piece, given_to in facts(sim, layout)["access"].items():
        collected.setdefault(whole_name(piece), set()).add(tuple(given_to))
    return collected


def same(layout: Layout, plan: Any, sim: Simulator) -> None:
    """As a fresh layout of the plan, but for addresses; a reservation may be larger."""
    assert layout.drift() == []
    with hipplan.apply(plan, runtime="sim") as fresh:
        sized = {r.name: r for r in layout.program.resources}
        wanted = {r.name: r for r in fresh.program.resources}
        assert sized.keys() == wanted.keys()
        for name, item in wanted.items():
            assert sized[name] == item or (item.kind == "reservation" and sized[name].size > item.size)
        assert rights_of(sim, layout) == rights_of(sim, fresh)
        assert {whole_name(c.name) for c in layout.verify()} == {whole_name(c.name) for c in fresh.verify()}
        for step in layout.program.steps:
            if isinstance(step, CreateManagedBuffer):
                for at in range(0, step.size, 4096):
                    asked = [
                        [
                            item.runtime.range_attribute((item["m"].address) + at, 4096, what)
                            for what in ("read_mostly", "preferred_location")
                        ]
                        + [item.runtime.accessed_by((item["m"].address) + at, 4096)]
                        for item in (layout, fresh)
                    ]
                    assert asked[0] == asked[1]


class Kept(NamedTuple):
    """What an update must not lose: as the driver has it, without hipplan's own comparison."""

    memory: set[int]
    """The handles of allocations, and the addresses of buffers."""
    places: dict[int, tuple[int, int]]
    """Address of a mapping -> its allocation's handle, its size."""
    ranges: dict[str, int]
    rights: dict[int, list[int]]
    peers: set[tuple[int, int]]

    def remains_in(self, now: Kept) -> bool:
        return (
            self.memory <= now.memory
            and all(now.places.get(at, (0, 0))[0] == handle for at, (handle, _) in self.places.items())
            and all(now.places[at][1] >= size for at, (_, size) in self.places.items())
            and all(now.ranges.get(name, address) == address for name, address in self.ranges.items())
            and all(has >= had for at in self.rights for had, has in zip(self.rights[at], now.rights[at], strict=True))
            and self.peers <= now.peers
        )


def kept(sim: Simulator, layout: Layout) -> Kept:
    state, known = layout._holding.state, {resource.name: resource for resource in layout.program.resources}
    addresses = {name: layout[name].address for name, resource in known.items()
                 if resource.kind not in ("allocation", "peer", "stream")}  # fmt: skip
    mappings = [resource for resource in known.values() if resource.kind == "mapping"]
    buffers = {addresses[name] for name, resource in known.items() if resource.kind in ("device", "pinned", "managed")}
    handles = {name: state.handle_of(name) for name, resource in known.items() if resource.kind == "allocation"}
    return Kept(
        {*buffers, *handles.values()},
        {addresses[mapping.name]: (handles[mapping.memory], mapping.size) for mapping in mappings},
        {name: at for name, at in addresses.items() if known[name].kind in ("region", "reservation")},
        {at: [sim.runtime.access(device, at) for device in (0, 1)] for at in (addresses[m.name] for m in mappings)},
        {(peer["device"], peer["peer"]) for peer in sim.ledger()["peers"]},
    )


def updated(layout: Layout, plan: Any, sim: Simulator) -> Difference | None:
    """None where 7.0 to 7.2 cannot go there in place, which is said before the first driver call.

    Without consent the update is made if and only if it loses nothing."""
    before, as_it_is = kept(sim, layout), facts(sim, layout)
    try:
        change = layout.update(plan)
    except MachineError as error:
        assert [diagnostic.code for diagnostic in error.diagnostics] == ["HP309"]
        assert layout.drift() == []
        return None
    except ApplyError as error:
        assert {diagnostic.code for diagnostic in error.diagnostics} <= {"HP423", "HP424"}
        assert facts(sim, layout) == as_it_is
        if error.diagnostics[0].code == "HP424":  # a new link would open a mapping, also of what goes
            return None
        change = layout.update(plan, lose="*")
        assert not before.remains_in(kept(sim, layout))
    else:
        assert before.remains_in(kept(sim, layout))
    return change


@pytest.fixture(params=["7.2.53211", "7.3.0"])
def release(request: pytest.FixtureRequest, sim: Simulator) -> Iterator[str]:
    with as_release(sim, request.param, *DEFECTS.get(request.param, ())):
        yield request.param


@pytest.mark.in_parts
@settings(max_examples=80 if WHOLE else 15)
@given(old=plans(), new=plans())
def test_any_plan_becomes_any_other_and_back(old: Any, new: Any, sim: Simulator, release: str) -> None:
    nothing = sim.alive()
    with hipplan.apply(old, runtime="sim") as layout:
        for number, (_, address) in enumerate(writable(layout)):
            sim.fill(address, number + 1, 64)
        before = facts(sim, layout)
        change = updated(layout, new, sim)
        if change is None:
            return
        after = facts(sim, layout)
        made = {step.name for step in (*change.additions, *change.changes) if step.makes}
        for step in layout._holding.state.lowered.steps:
            if isinstance(step, CreateAllocation) and whole_name(step.name) not in made:
                assert after["handle"][step.name] == before["handle"][step.name]
            elif isinstance(step, Reserve) and step.name not in made:
                assert after["address"][step.name] == before["address"][step.name]
        for what, content in after["bytes"].items():
            assert before["bytes"].get(what, content) == content
        same(layout, new, sim)
        assert layout.update(new).empty
        if updated(layout, old, sim) is not None:
            same(layout, old, sim)
    assert sim.alive() == nothing


def calls(sim: Simulator, trace: Path, act: Callable[[], Any]) -> list[str]:
    """The driver calls that an act makes."""
    trace.touch()
    sim.runtime.trace_to(str(trace))
    act()
    sim.runtime.trace_to("")
    return [json.loads(line)["call"] for line in trace.read_text().splitlines()]


CHANGING = {"hipMemCreate", "hipMemRelease", "hipMemMap", "hipMemUnmap", "hipMemSetAccess", "hipMemAddressReserve",
            "hipMemAddressFree", "hipHostMalloc", "hipHostFree", "hipMalloc", "hipFree"}  # fmt: skip


def test_the_same_plan_changes_nothing(sim: Simulator, tmp_path: Path) -> None:
    with hipplan.apply(TWO, runtime="sim") as layout:
        made = calls(sim, tmp_path / "trace", lambda: layout.update(TWO))
        assert CHANGING & set(made) == set()
        assert "hipMemGetAccess" not in made
        assert str(nothing := layout.update(TWO)) == "no changes"
        assert not nothing and repr(nothing) == "<hipplan.Difference: no changes>"
        grown = layout.update(TWO | {"buffers": {"staging": {"kind": "pinned", "size": "2MiB"}}}, lose="*")
        assert grown
        text = "-/+ pinned staging: is recreated, 1MiB -> 2MiB; loses its bytes, moves to another address"
        assert repr(grown) == f"<hipplan.Difference: {text}>"
        assert repr(layout.update(BASE, lose="*")) == "<hipplan.Difference: 6 to free; 6MiB of bytes lost>"


def test_what_a_change_prints_has_a_limit(sim: Simulator) -> None:
    many = {f"b{number}": {"kind": "device", "size": 1 << 16} for number in range(200)}
    with hipplan.apply({"hipplan": 1, "buffers": many}, runtime="sim") as layout:
        change = layout.update({"hipplan": 1, "buffers": {"new": {"kind": "device", "size": 1 << 16}}}, lose="*")
    assert len(change.lines()) == 201
    *first, last = str(change).split("\n")
    assert first == [*map(str, change.lines()[:60])]
    assert first[:2] == ["+ device new: 64KiB", "- device b0: 64KiB; loses its bytes"]
    assert last == "and 141 more; in all 1 to make, 200 to free; 12.5MiB of bytes lost"
    assert change.lines()[1].loss is not None and change.lines()[0].loss is None


def test_what_stays_costs_no_driver_call(sim: Simulator, tmp_path: Path) -> None:
    many = BASE | {
        "allocations": {"a": {"device": "gpu.0", "size": "2MiB", "count": 1000}},
        "reservations": {"r": {"size": "4GiB", "access": {"gpu.0": "rw"}, "mappings": [{"allocation": "a.*"}]}},
    }
    more = many | {"buffers": {"x": {"kind": "pinned", "size": 4096}}}
    with hipplan.apply(many, runtime="sim") as layout:
        nothing = calls(sim, tmp_path / "nothing", lambda: layout.update(many))
        made = calls(sim, tmp_path / "one", lambda: layout.update(more))
        assert [call for call in made if call in CHANGING] == ["hipHostMalloc"]
        assert len(made) - len(nothing) < 12
        fewer = json.loads(json.dumps(more))
        fewer["allocations"]["a"]["count"] = 998
        back = [
            call for call in calls(sim, tmp_path / "back", lambda: layout.update(fewer, lose="*")) if call in CHANGING
        ]
        assert back == ["hipMemUnmap"] * 2 + ["hipMemRelease"] * 2


def test_additions_come_first_and_what_goes_goes_last(sim: Simulator, tmp_path: Path) -> None:
    other = json.loads(json.dumps(TWO))
    other["allocations"]["b"]["size"] = "4MiB"  # recreated in its place
    other["allocations"]["c"] = {"device": "gpu.0", "size": "2MiB"}
    other["reservations"]["r"]["mappings"].append({"allocation": "c", "at": "8MiB"})
    del other["buffers"]
    with hipplan.apply(TWO, runtime="sim") as layout:
        made = calls(sim, tmp_path / "trace", lambda: layout.update(other, lose="*"))
        asked = [call for call in made if call in CHANGING | {"hipMemGetAccess", "hipDeviceSynchronize"}]
        order = list(dict.fromkeys(asked))
        assert order == ["hipMemCreate", "hipMemMap", "hipMemSetAccess", "hipMemGetAccess", "hipDeviceSynchronize",
                         "hipMemUnmap", "hipHostFree", "hipMemRelease"]  # fmt: skip
        assert asked.count("hipMemUnmap") == 1
        assert asked[asked.index("hipMemUnmap") + 1 :].count("hipMemMap") == 1
        assert asked.index("hipHostFree") > max(n for n, call in enumerate(asked) if call == "hipMemGetAccess")


def test_memory_with_views_is_neither_removed_nor_moved(sim: Simulator, tmp_path: Path) -> None:
    without = {key: value for key, value in TWO.items() if key != "buffers"}
    with hipplan.apply(TWO, runtime="sim") as layout:
        array = numpy.asarray(layout["staging"])

        def refused() -> None:
            with pytest.raises(LayoutInUse, match=r"'staging' \(1\)"):
                layout.update(without, lose="*")

        assert CHANGING & set(calls(sim, tmp_path / "trace", refused)) == set()
        array[0] = 7
        other = json.loads(json.dumps(TWO))
        del other["allocations"]["b"], other["reservations"]["r"]["mappings"][1]
        layout.update(other, lose="*")  # memory without a view may be freed
        assert array[0] == 7
        del array
        stale = layout["staging"]
        layout.update(without, lose="*")
        with pytest.raises(BufferError, match="was freed"):
            numpy.asarray(stale)
        with pytest.raises(KeyError):
            layout["staging"]
        layout.update(other, lose="*")
        assert numpy.asarray(layout["staging"]).shape == (MIB,)
        with pytest.raises(BufferError, match="was freed"):
            numpy.asarray(stale)


def test_a_leak_among_the_releases_is_named_and_the_layout_is_the_new_one(sim: Simulator) -> None:
    without = {key: value for key, value in TWO.items() if key != "buffers"}
    with hipplan.apply(TWO, runtime="sim") as layout:
        sim.runtime.arm_faults("hipHostFree@1=hipErrorUnknown")
        with pytest.raises(LeakError, match="'staging'") as caught:
            layout.update(without, lose="*")
        assert caught.value.leaks == ("staging",)
        assert "staging" not in layout
        assert layout.drift() == []
    sim.free_everything()


def test_what_is_imported_is_not_freed_by_an_update(sim: Simulator) -> None:
    """Its memory belongs to another process: it is in use before and after."""
    shared = {"size": "120GiB", "shareable": "posix_fd"}
    exporting = {"hipplan": 1, "devices": {"gpu": {}}, "allocations": {"a": shared}}
    importing = {**exporting, "allocations": {"a": {**shared, "bind": "a"}}}
    more = {**importing, "buffers": {"b": {"kind": "device", "size": "100GiB"}}}
    with hipplan.apply(exporting, runtime="sim") as first:
        descriptor = first.export("a")
        with hipplan.apply(importing, runtime="sim", bind={"a": descriptor}) as second:
            assert second.update(importing).empty
            with pytest.raises(MachineError, match="HP301"):
                second.update(more)
        os.close(descriptor)


def test_the_peak_of_old_and_new_must_fit(sim: Simulator) -> None:
    def plan(size: str, name: str = "a") -> dict[str, Any]:
        return BASE | {
            "allocations": {name: {"device": "gpu.0", "size": size}},
            "reservations": {"r": {"size": "256GiB", "access": {"gpu.0": "rw"}, "mappings": [{"allocation": name}]}},
        }

    with hipplan.apply(plan("120GiB"), runtime="sim") as layout:
        with pytest.raises(MachineError, match=r"HP301.*gpu.0 needs 10GiB more than is free while old and new memory"):
            layout.update(plan("82GiB"))
        assert layout["a"].size == 120 * 2**30
        layout.update(plan("60GiB", "b"), lose="*")
        with pytest.raises(MachineError, match="HP301"):
            layout.update(plan("193GiB"))


def test_the_peak_of_host_memory_must_fit_too() -> None:
    def plan(size: str, **more: Any) -> dict[str, Any]:
        return BASE | {"buffers": {"x": {"kind": "pinned", "size": size}, **more}}

    small = load_machine("sim-2").model_copy(update={"host_memory": 1 << 30})
    old = hipplan.compile(plan("700MiB"), small)
    more = plan("700MiB", y={"kind": "registered", "anonymous": {"size": "200MiB"}})
    assert len(compile_change(old, load(more), small).additions) == 1
    with pytest.raises(MachineError, match=r"HP303.*old and new memory together need 1500MiB of host memory.* 1GiB"):
        compile_change(old, load(plan("800MiB")), small)


def test_a_plan_that_is_wrong_changes_nothing(sim: Simulator) -> None:
    with hipplan.apply(TWO, runtime="sim") as layout:
        with pytest.raises(PlanError):
            layout.update({"hipplan": 1, "bufers": {}})
        assert layout["r"].size == 16 * MIB


def test_renamed_devices_are_the_same_devices(sim: Simulator, tmp_path: Path) -> None:
    text = json.dumps(TWO).replace("gpu.0", "left").replace("gpu.1", "right")
    renamed = json.loads(text) | {"devices": {"left": {"ordinal": 0}, "right": {"ordinal": 1}}}
    with hipplan.apply(TWO, runtime="sim") as layout:
        made = calls(sim, tmp_path / "trace", lambda: layout.update(renamed))
        assert CHANGING & set(made) == set()
        assert layout["a"].resource.device == "left"


def test_names_that_become_other_devices_are_reported_with_their_numbers() -> None:
    def program(first: int, holder: str) -> dict[str, Any]:
        return {
            "hipplan": 1,
            "devices": {"a": {"ordinal": first}, "b": {"ordinal": 1 - first}},
            "streams": {"s": {"device": "a"}},
            "allocations": {"w": {"device": holder, "size": "2MiB"}},
            "reservations": {"r": {"mappings": [{"allocation": "w", "access": {"a": "rw"}}]}},
        }

    machine = load_machine("sim-2")
    old = hipplan.compile(program(0, "a"), machine)

    text = str(compile_change(old, load(program(1, "b")), machine))

    assert "~ mapping r[0]: access (a (device 0): rw) -> (a (device 1): rw); a loses access" in text.splitlines()
    assert "-/+ stream s: is recreated" in text.splitlines()


def test_a_peer_link_that_is_written_otherwise_stays_on(sim: Simulator) -> None:
    linked = TWO | {"peers": "all", "buffers": {"x": {"kind": "device", "size": "1MiB"}}}
    named = json.loads(json.dumps(linked)) | {"peers": [{"device": "gpu.1", "peer": "gpu.0"}]}
    with hipplan.apply(linked, runtime="sim") as layout:
        layout.update(named, lose="*")
        assert [(peer["device"], peer["peer"]) for peer in sim.ledger()["peers"]] == [(1, 0)]


def test_another_object_bound_by_the_same_name_is_another_buffer(sim: Simulator) -> None:
    plan = BASE | {"buffers": {"mine": {"kind": "registered", "bind": "memory"}}}
    first, second = numpy.zeros(4096, "u1"), numpy.zeros(8192, "u1")
    with hipplan.apply(plan, runtime="sim", bind={"memory": first}) as layout:
        assert layout.update(plan).empty
        assert layout.update(plan, bind={"memory": first}).empty
        flagged = BASE | {"buffers": {"mine": {"kind": "registered", "bind": "memory", "portable": True}}}
        with pytest.raises(ApplyError, match=r"HP420.*'mine' is registered as 'mine' until the end"):
            layout.update(flagged)
        assert layout.drift() == []
        layout.update(plan, bind={"memory": second})
        assert layout["mine"].address == second.ctypes.data
        assert len(sim.ledger()["buffers"]) == 1


def test_the_host_memory_under_a_registered_buffer_goes_with_it(sim: Simulator, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(10000))
    plan = BASE | {"buffers": {"file": {"kind": "registered", "file": str(tmp_path / "data")}}}
    with hipplan.apply(plan, runtime="sim") as layout:
        before = Path("/proc/self/maps").read_text().count(str(tmp_path / "data"))
        layout.update(BASE, lose="*")
        assert before == 1
        assert str(tmp_path / "data") not in Path("/proc/self/maps").read_text()


def test_a_move_that_waits_finds_the_memory_as_a_change_has_left_it_meanwhile(sim: Simulator) -> None:
    kv = {"size": "4MiB", "chunk": "2MiB", "reserve": "16MiB"}
    buffer = {"kind": "device", "size": "2MiB"}
    wanted = {"hipplan": 1, "regions": {"kv": kv}, "buffers": {"other": buffer}}
    with hipplan.apply(wanted, runtime="sim") as layout:
        began, go_on = threading.Event(), threading.Event()

        def wait(_done: int, _total: int) -> None:
            began.set()
            go_on.wait(300)

        failed: list[BaseException] = []

        def second() -> None:
            try:
                layout.fill("kv", 7)
            except BaseException as error:
                failed.append(error)

        moves = [threading.Thread(target=layout.fill, args=("other", 1), kwargs={"on_bytes": wait})]
        moves.append(threading.Thread(target=second))
        moves[0].start()
        assert began.wait(300)
        moves[1].start()
        time.sleep(0.05)  # it waits for the first one now
        layout.shrink("kv", by="2MiB")
        go_on.set()
        for move in moves:
            move.join()
        assert failed == []
        assert sim.read(layout["kv"].address, 2 << 20) == b"\7" * (2 << 20)


def test_updates_from_many_threads_come_one_after_another(sim: Simulator) -> None:
    more = TWO | {"buffers": {"other": {"kind": "device", "size": "1MiB"}}}
    failures: list[BaseException] = []
    with hipplan.apply(TWO, runtime="sim") as layout:

        def work(number: int) -> None:
            try:
                for turn in range(10):
                    layout.update(more if (turn + number) % 2 else TWO, lose=["other", "staging"])
                    if "other" in layout:
                        memory = layout["r[0]"].__dlpack__()
                        del memory
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert layout.drift() == []


def test_compiling_a_change_needs_no_driver_and_is_deterministic() -> None:
    machine = load_machine("sim-2")
    old = hipplan.compile(load(TWO), machine)
    first, second = (compile_change(old, load(BASE), machine) for _ in range(2))
    assert first == second
    assert [step.name for step in first.released] == ["a", "b", "r", "r[0]", "r[1]", "staging"]


def test_the_example_of_the_manual_runs(sim: Simulator, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "transactions.md").read_text(), re.S)
    exec(compile(code, "docs/transactions.md", "exec"), {})

    assert "~ region cache: access" in capsys.readouterr().out


def test_after_a_roll_back_everybody_may_look_again(sim: Simulator) -> None:
    with hipplan.apply(TWO, runtime="sim") as layout:
        piece = layout["staging"]
        sim.runtime.arm_faults("hipMalloc@1=hipErrorOutOfMemory")
        with pytest.raises(ApplyError):
            layout.update(TWO | {"buffers": {"other": {"kind": "device", "size": "1MiB"}}})
        assert numpy.asarray(piece).shape == numpy.asarray(layout["staging"]).shape == (MIB,)


def test_new_addresses_and_bytes_that_do_not_move_are_reported(sim: Simulator) -> None:
    def plan(reserve: str, first: int) -> dict[str, Any]:
        tensors = {"a": {"dtype": "f32", "shape": [first]}, "b": {"dtype": "f32", "shape": [64]}}
        region = {"size": "4MiB", "reserve": reserve, "chunk": "2MiB", "tensors": tensors}
        return {"hipplan": 1, "regions": {"k": region}, "reservations": {"r": {"size": reserve}}}

    with hipplan.apply(plan("64MiB", 64), runtime="sim") as layout:
        assert str(layout.update(plan("128MiB", 64), lose="*")).splitlines() == [
            "-/+ reservation r: is reserved again, 64MiB -> 128MiB; moves to another address",
            "-/+ region k: is reserved again, 4MiB, with its bytes; moves to another address",
        ]
        assert str(layout.update(plan("128MiB", 4096), lose="*")).splitlines() == [
            "~ tensor k.a: f32 64 -> f32 4096",
            "~ tensor k.b: lies at +16KiB, was at +256B; moves to another address",
        ]
        refilled = plan("128MiB", 64) | {"contents": {"k.b": {"value": 1.0}}}
        assert str(layout.update(refilled, lose="*")).splitlines() == [
            "~ region k: contents are written into it; loses 256B of its bytes",
            "~ tensor k.a: f32 4096 -> f32 64",
            "~ tensor k.b: lies at +256B, was at +16KiB; moves to another address",
        ]


def test_a_layout_that_could_not_be_restored_is_read_back_and_closed_but_not_changed(sim: Simulator) -> None:
    def plan(right: str) -> dict[str, Any]:
        access = {"gpu.0": "rw", "gpu.1": right}
        mappings = [{"allocation": "a", "access": access}]
        allocations, devices = {"a": {"device": "gpu.0", "size": "2MiB"}}, {"gpu": {"count": 2}}
        return {
            "hipplan": 1,
            "devices": devices,
            "allocations": allocations,
            "reservations": {"r": {"mappings": mappings}},
        }

    layout = hipplan.apply(plan("rw"), runtime="sim")
    sim.runtime.arm_faults("hipMemSetAccess@1+=hipErrorUnknown")
    with pytest.raises(ApplyError, match="could not be restored"):
        layout.update(plan("r"), lose="*")
    sim.runtime.arm_faults("")
    with pytest.raises(ApplyError, match=r"HP420.*an earlier change could not be undone"):
        layout.update(plan("r"), lose="*")
    assert layout.verify()
    layout.close()
    assert sim.alive() == set()


def test_what_an_earlier_change_left_over_is_freed_by_the_next(
    sim: Simulator, caplog: pytest.LogCaptureFixture
) -> None:
    plan: dict[str, Any] = {"hipplan": 1, "buffers": {"s": {"kind": "pinned", "size": "1MiB"}}}
    with hipplan.apply(plan, runtime="sim") as layout:
        rows = _core.Rows([("create device buffer", "left", 1, 0, 4096)])
        stopped = _core.Change(layout._holding.native, rows, slots=2, same_slots=1)
        stopped.advance(1)
        stopped.roll_back()  # and then it was interrupted
        sim.runtime.arm_faults("hipFree@1=hipErrorUnknown")
        assert layout.update(plan).empty
        assert "device buffer 'left' of 4096 bytes" in caplog.text
        assert "was not released" in caplog.text
    sim.free_everything()
