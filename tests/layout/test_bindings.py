"""What the caller passes with `bind`: his memory, registered, and descriptors, imported."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan import ApplyError
from hipplan.language.rank import Rank
from tests.conftest import Simulator

BASE: dict[str, Any] = {"hipplan": 1, "devices": {"gpu": {"count": 1}}}
REGISTERED = BASE | {"buffers": {"mine": {"kind": "registered", "bind": "memory"}}}


def test_a_descriptor_that_is_passed_again_is_new_memory(sim: Simulator, tmp_path: Path) -> None:
    """Its number may be one that was closed meanwhile."""
    shared = {"size": "2MiB", "shareable": "posix_fd"}
    mapped = {"r": {"access": {"gpu.0": "rw"}, "mappings": [{"allocation": "a"}]}}
    exporting = BASE | {"allocations": {"a": shared}, "reservations": mapped}
    importing = exporting | {"allocations": {"a": {**shared, "bind": "a"}}}
    with hipplan.apply(exporting, runtime="sim") as first, hipplan.apply(exporting, runtime="sim") as second:
        first.fill("r[0]", 1)
        second.fill("r[0]", 2)
        descriptor = first.export("a")
        with hipplan.apply(importing, runtime="sim", bind={"a": descriptor}) as layout:
            exported = second.export("a")
            os.dup2(exported, descriptor)
            os.close(exported)
            assert not layout.update(importing)
            layout.update(importing, bind={"a": descriptor})
            os.close(descriptor)
            layout.save("r[0]", tmp_path / "found.bin")
            assert (tmp_path / "found.bin").read_bytes() == bytes([2]) * (2 << 20)


def test_memory_is_imported_with_its_device_current(sim: Simulator) -> None:
    """HIP up to 7.14 takes it for memory of the current device, and copies it with that one."""
    shared: dict[str, Any] = {"size": "2MiB", "shareable": "posix_fd"}
    devices = {"hipplan": 1, "devices": {"gpu": {"count": 2}}}
    exporting = devices | {"allocations": {"a": {"device": "gpu.1", **shared}}}
    imported = {"a": {"device": "gpu.1", "bind": "a", **shared}, "b": {"device": "gpu.0", "bind": "a", **shared}}
    with hipplan.apply(exporting, runtime="sim") as exporter:
        descriptor = exporter.export("a")
        with hipplan.apply(devices | {"allocations": imported}, runtime="sim", bind={"a": descriptor}) as layout:
            state = layout._holding.state
            places = [layout.runtime.properties_of(state.handle_of(name)).device for name in ("a", "b")]
            assert places == [1, 0]
            assert layout.runtime.current_device() == 0
        os.close(descriptor)


def test_the_same_memory_in_another_object_stays_registered(sim: Simulator) -> None:
    memory = bytearray(8192)
    with hipplan.apply(REGISTERED, runtime="sim", bind={"memory": memory}) as layout:
        assert layout.update(REGISTERED, bind={"memory": memoryview(memory)}).empty
        assert layout.drift() == []


@pytest.mark.parametrize(
    ("buffers", "says"),
    [
        (
            {"b": {"kind": "registered", "bind": "x", "count": 2}},
            "the same memory cannot be registered as several buffers",
        ),
        (
            {name: {"kind": "registered", "bind": "x"} for name in "bc"},
            "'b' and 'c' both register the memory bound to 'x'",
        ),
    ],
)
def test_a_plan_registers_memory_once(buffers: dict[str, Any], says: str) -> None:
    with pytest.raises(hipplan.PlanError, match=f"HP107.*{says}") as caught:
        hipplan.load(BASE | {"buffers": buffers})
    assert len(caught.value.diagnostics) == 1


def test_memory_that_is_registered_twice_can_be_moved_while_the_error_is_looked_at(sim: Simulator) -> None:
    two = BASE | {"buffers": {name: {"kind": "registered", "bind": name} for name in ("mine", "again")}}
    memory = bytearray(4096)
    with pytest.raises(ApplyError, match="it is registered as 'mine'") as caught:
        hipplan.apply(two, runtime="sim", bind={"mine": memory, "again": memory})
    memory.extend(b"more")
    assert caught.value.__traceback__ is not None


def test_memory_is_registered_once_under_whatever_name_it_comes(sim: Simulator) -> None:
    """An object that was made twice is freed twice; the second time is reported as a leak."""
    memory = bytearray(8192)
    upper = memoryview(memory)[4096:]
    two = BASE | {"buffers": {name: {"kind": "registered", "bind": name} for name in ("mine", "again")}}
    one = BASE | {"buffers": {"mine": {"kind": "registered", "bind": "mine"}}}
    with pytest.raises(ApplyError, match=r"HP405.*does not fit 'again': it is registered as 'mine'"):
        hipplan.apply(two, runtime="sim", bind={"mine": memory, "again": upper})
    with hipplan.apply(one, runtime="sim", bind={"mine": memory}) as layout:
        with pytest.raises(ApplyError, match=r"HP420.*the memory of 'again' is registered as 'mine'\n"):
            layout.update(two, bind={"again": upper})
        assert layout.drift() == []
    with hipplan.apply(BASE, runtime="sim") as layout:
        with pytest.raises(ApplyError, match=r"HP405.*does not fit 'again': it is registered as 'mine'"):
            layout.update(two, bind={"mine": memory, "again": upper})
        layout.update(two, bind={"mine": memoryview(memory)[:4096], "again": upper})
    assert sim.alive() == set()


def test_memory_is_registered_by_one_layout(sim: Simulator) -> None:
    """Closing one of two would end the registration of both."""
    memory = bytearray(8192)
    lower, upper = memoryview(memory)[:4096], memoryview(memory)[4096:]
    says = r"HP405.*does not fit 'mine': it is registered as 'mine' by the layout 'first'"
    with hipplan.apply(REGISTERED | {"name": "first"}, runtime="sim", bind={"memory": memory}) as first:
        with pytest.raises(ApplyError, match=says):
            hipplan.apply(REGISTERED, runtime="sim", bind={"memory": upper})
        with hipplan.apply(BASE, runtime="sim") as other, pytest.raises(ApplyError, match=says):
            other.update(REGISTERED, bind={"memory": memory})
        first.update(REGISTERED, bind={"memory": memoryview(memory)})
        assert first.drift() == []
    with hipplan.apply(REGISTERED, runtime="sim", bind={"memory": lower}) as first:
        with hipplan.apply(REGISTERED, runtime="sim", bind={"memory": upper}):
            pass
        assert first.drift() == []


def test_memory_is_registered_once_whatever_its_layouts_do(sim: Simulator) -> None:
    """Before one has it all, and after one was closed while views of it live."""
    memory = bytearray(4096)
    refused: list[str] = []

    def another(number: int, step: Any) -> None:
        if step.name == "last":
            with pytest.raises(ApplyError, match=r"hipHostRegister.*AlreadyRegistered") as caught:
                hipplan.apply(REGISTERED, runtime="sim", bind={"memory": memory})
            refused.append(caught.value.step)

    both = BASE | {"buffers": REGISTERED["buffers"] | {"last": {"kind": "pinned", "size": 4096}}}
    first = hipplan.apply(both, runtime="sim", bind={"memory": memory}, on_step=another)
    assert refused == ["mine"]
    assert first.drift() == []
    view = memoryview(first["mine"])
    first.close(force=True)
    with pytest.raises(ApplyError, match="AlreadyRegistered"):
        hipplan.apply(REGISTERED, runtime="sim", bind={"memory": memory})
    del view
    with hipplan.apply(REGISTERED, runtime="sim", bind={"memory": memory}) as layout:
        assert layout.drift() == []
    memory.append(1)
    assert sim.alive() == set()


def test_each_refusal_says_how_long_the_memory_is_registered(sim: Simulator) -> None:
    """Also of the second buffer that is recreated."""
    one: dict[str, Any] = {"kind": "registered", "bind": "one"}
    two: dict[str, Any] = {"kind": "registered", "bind": "two"}
    stays, other = bytearray(8192), bytearray(8192)
    with hipplan.apply(BASE | {"buffers": {"a": one, "b": two}}, runtime="sim",
                       bind={"one": bytearray(8192), "two": stays}) as layout:  # fmt: skip
        anew = BASE | {"buffers": {"a": {**one, "portable": True}, "b": {**two, "portable": True}}}
        with pytest.raises(
            ApplyError, match="the memory of 'b' is registered as 'b' until the end of the change"
        ) as it:
            layout.update(anew, bind={"one": other, "two": stays})
        assert it.value.step == "b"


def raising(number: int, step: Any) -> None:
    if step.name == "last":
        raise RuntimeError("mine")


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("recorded", [False, True], ids=["", "recorded"])
@pytest.mark.parametrize("change", ["apply", "update"])
@pytest.mark.parametrize(
    ("faults", "on_step"),
    [("hipHostRegister@1=2", None), ("hipMalloc@1=2", None), ("", raising)],
    ids=["register", "native", "on_step"],
)
def test_no_object_of_the_caller_is_kept_after_the_error(
    faults: str, on_step: Any, change: str, recorded: bool, sim: Simulator, no_collection: None, tmp_path: Path
) -> None:
    """Not even until a garbage collection, as errors and frames in a circle would."""
    memory, record = bytearray(8192), tmp_path / "record" if recorded else None
    wanted = BASE | {"buffers": {**REGISTERED["buffers"], "last": {"kind": "device", "size": 4096}}}

    def fail() -> None:
        collected: dict[str, Any] = {"bind": {"memory": memoryview(memory)}, "on_step": on_step}
        if change == "apply":
            sim.runtime.arm_faults(faults)
            hipplan.apply(wanted, runtime="sim", record=record, **collected)
        with hipplan.apply(BASE, runtime="sim", record=record) as layout:
            sim.runtime.arm_faults(faults)
            layout.update(wanted, **collected)

    with pytest.raises((ApplyError, RuntimeError)):
        fail()
    memory.extend(b"more")


def test_nothing_of_the_caller_is_held_by_a_refusal(sim: Simulator, no_collection: None) -> None:
    memory = bytearray(8192)
    flagged = BASE | {"buffers": {"mine": {**REGISTERED["buffers"]["mine"], "portable": True}}}

    def fail(error: type[Exception], look: bool) -> None:
        with hipplan.apply(REGISTERED, runtime="sim", bind={"memory": memory}) as layout:
            view = memoryview(layout["mine"]) if look else memoryview(b"")
            with view, pytest.raises(error):
                layout.update(flagged, bind={"memory": memoryview(memory)})

    for error, look in ((ApplyError, False), (hipplan.LayoutInUse, True)):
        fail(error, look)
        memory.extend(b"more")


@pytest.mark.parametrize(
    ("names", "hints"),
    [
        (["memroy"], ["did you mean 'memory'?"]),
        (["other", "bound"], ["there are: memory", "there are: memory"]),
        (["mine"], ["there are: memory"]),  # the name of the buffer
    ],
)
def test_a_name_that_nothing_in_the_plan_binds_is_refused(names: list[str], hints: list[str], sim: Simulator) -> None:
    unknown = {name: bytearray(4096) for name in names}
    memory = bytearray(4096)
    with pytest.raises(ApplyError) as refused:
        hipplan.apply(REGISTERED, runtime="sim", bind={"memory": memory, **unknown})
    with hipplan.apply(REGISTERED, runtime="sim", bind={"memory": memory}) as layout:
        with pytest.raises(ApplyError) as not_updated:
            layout.update(REGISTERED, bind=unknown)
        assert layout.drift() == []

    for caught in (refused, not_updated):
        found = caught.value.diagnostics
        assert [diagnostic.code for diagnostic in found] == ["HP405"] * len(names)
        assert [diagnostic.summary for diagnostic in found] == [f"nothing in the plan has bind: '{n}'" for n in names]
        assert [diagnostic.hint.partition("; ")[0] for diagnostic in found] == hints


def test_a_plan_that_binds_nothing_takes_no_names(sim: Simulator) -> None:
    with pytest.raises(ApplyError, match="there are: none"):
        hipplan.apply(BASE, runtime="sim", bind={"memory": bytearray(4096)})
    hipplan.apply(BASE, runtime="sim", bind={}).close()


def test_ranks_may_pass_what_only_the_part_of_another_binds(sim: Simulator) -> None:
    plan = BASE | {"ranks": {}, "buffers": {"mine": {"kind": "registered", "bind": "memory", "rank": 1}}}
    of_rank = hipplan.load(plan, rank=Rank(rank=0, ranks=2))
    with hipplan.apply(of_rank, runtime="sim", bind={"memory": bytearray(4096)}) as layout:
        assert "mine" not in layout
