"""Memory goes, addresses stay: sleep, and wake with the bytes of before."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan import _core
from hipplan.errors import ApplyError, HipplanError, LayoutInUse
from hipplan.layout.layout import Layout
from hipplan.layout.run import run
from hipplan.layout.undo import wait_until_freed
from hipplan.program.written import read, write
from tests.conftest import WHOLE, Simulator
from tests.faults.harness import as_release

MIB = 2**20
PLAN: dict[str, Any] = {
    "hipplan": 1,
    "devices": {"gpu": {"count": 2}},
    "allocations": {
        "part": {"device": "gpu.0", "size": "2MiB"},
        "shared": {"device": "gpu.0", "size": "2MiB", "shareable": "posix_fd"},
        "unmapped": {"device": "gpu.0", "size": "2MiB"},
    },
    "reservations": {
        "twice": {
            "size": "16MiB",
            "mappings": [
                {"allocation": "part", "at": 0, "access": {"gpu.0": "rw"}},
                {"allocation": "part", "at": "8MiB", "access": {"gpu.1": "r"}},
            ],
        },
        "open": {"mappings": [{"allocation": "shared", "access": {"gpu.0": "rw"}}]},
    },
    "regions": {
        "weights": {
            "devices": ["gpu.*"],
            "spread": "interleave",
            "size": "8MiB",
            "chunk": "2MiB",
            "seal": True,
            "access": {"owner": "rw", "others": "r"},
            "tensors": {"head": {"dtype": "f32", "shape": [1024]}},
        },
        "cache": {"device": "gpu.1", "size": "4MiB", "chunk": "2MiB", "reserve": "1GiB"},
    },
    "buffers": {
        "plain": {"kind": "device", "size": "1MiB"},
        "table": {"kind": "managed", "size": "1MiB"},
        "staging": {"kind": "pinned", "size": "1MiB"},
    },
    "streams": {"work": {"device": "gpu.0"}},
    "contents": {"weights": {"value": 7}},
}


@pytest.fixture
def layout(sim: Simulator) -> Iterator[Layout]:
    with hipplan.apply(PLAN, runtime="sim") as made:
        yield made
    assert sim.alive() == set()


def free(layout: Layout) -> list[int]:
    return [layout.runtime.memory_info(device)[0] for device in (0, 1)]


def address(layout: Layout, name: str) -> int:
    result = layout[name].address
    assert result is not None
    return result


def rights(layout: Layout, name: str) -> list[int]:
    return [layout.runtime.access(device, address(layout, name)) for device in (0, 1)]


@pytest.mark.parametrize("release", ["6.4", "7.2.53211", "7.3.0"])
def test_memory_goes_and_comes_back_at_the_same_addresses(sim: Simulator, release: str) -> None:
    defects = ["set_access_sums_in_heap_order"] if release.startswith("7.2") else []
    with as_release(sim, release, *defects), hipplan.apply(PLAN, runtime="sim") as layout:
        names = ("weights", "twice", "twice[0]", "twice[1]", "weights.head")
        places = {name: address(layout, name) for name in names}
        before = free(layout), {name: rights(layout, name) for name in names[2:]}, rights(layout, "weights")
        sim.write(places["twice"], bytes(range(256)))
        change = layout.sleep(["weights", "twice"])

        assert "~ region weights: falls asleep, 8MiB, its bytes are in pinned host memory" in str(change)
        assert layout.asleep == {"weights": "host", "part": "host"}
        assert free(layout) == [before[0][0] + 6 * MIB, before[0][1] + 4 * MIB]
        assert layout.drift() == []
        with pytest.raises(_core.HipError):
            layout.runtime.access(0, places["weights"])

        assert "~ region weights: wakes, 8MiB, with its bytes" in str(layout.wake())
        assert layout.asleep == {}
        assert {name: address(layout, name) for name in names} == places
        assert (free(layout), {name: rights(layout, name) for name in names[2:]}, rights(layout, "weights")) == before
        assert sim.read(places["weights"], 8 * MIB) == b"\7" * (8 * MIB)
        assert sim.read(places["twice"], 256) == bytes(range(256))
        assert layout.drift() == []
        assert layout["weights"].read_only


def test_what_sleeps_cannot_be_used(layout: Layout) -> None:
    layout.sleep(["weights", "twice"])
    for name in ("weights", "weights.head", "part", "twice[1]"):
        with pytest.raises(
            BufferError, match=f"'{re.escape(name)}' is asleep: its bytes are in pinned host memory.*wake"
        ):
            layout[name]
    assert layout["twice"].address  # which is only addresses
    uses = [
        lambda: layout.fill("weights.head", 1.0),
        lambda: layout.copy("twice[0]", "cache"),
        lambda: layout.save("weights", os.devnull),
        lambda: layout.load("twice[0]", __file__),
        lambda: layout.grow("twice", by="2MiB"),
        lambda: layout.shrink("weights", by="2MiB"),
        lambda: layout.remap("part"),
        lambda: layout.seal("twice[0]"),
        lambda: layout.unseal("weights"),
        lambda: layout.sleep("weights", to="drop"),
    ]
    for use in uses:
        with pytest.raises(ApplyError, match=r"HP441.*is asleep") as refused:
            use()
        assert refused.value.exit_code == 4
    with pytest.raises(BufferError, match="is asleep"):
        layout.export("part")
    with pytest.raises(BufferError, match="is asleep"), layout.torch_pool("weights"):
        pass


def test_once_asleep_or_awake_nothing_more_happens(layout: Layout) -> None:
    assert not layout.wake("weights")
    layout.sleep("weights")
    assert not layout.sleep("weights")
    assert layout.sleep(["weights", "twice"])
    layout.wake("weights")
    assert layout.asleep == {"part": "host"}
    layout.wake()
    assert not layout.wake()
    assert not layout.wake(["cache", "staging"])
    with pytest.raises(ApplyError, match=r"HP420.*\n.*did you mean 'cache'"):
        layout.wake("cahce")


def test_what_fell_asleep_one_after_the_other_wakes_together(layout: Layout, sim: Simulator) -> None:
    layout.grow("cache", by="4MiB")
    layout.fill("cache", 4)
    for name in ("weights", "twice", "cache"):
        layout.sleep(name)
    layout.wake()
    assert layout.drift() == []
    assert sim.read(address(layout, "weights"), 8 * MIB) == b"\7" * (8 * MIB)
    assert sim.read(address(layout, "cache"), 8 * MIB) == b"\4" * (8 * MIB)
    layout.update(PLAN, lose="*")
    assert layout.drift() == []


def test_what_is_dropped_has_the_bytes_that_the_plan_says(layout: Layout, sim: Simulator) -> None:
    places = {name: address(layout, name) for name in ("weights", "cache")}
    before = free(layout)
    change = layout.sleep(["weights", "cache", "unmapped"], to="drop")
    assert "region cache: falls asleep, 4MiB, its bytes are dropped" in str(change)
    assert free(layout) == [before[0] + 6 * MIB, before[1] + 8 * MIB]
    text = str(layout.wake())
    assert "region cache: wakes, 4MiB, without its bytes" in text
    assert "region weights: wakes, 8MiB, with its bytes" in text
    assert sim.read(places["weights"], 8 * MIB) == b"\7" * (8 * MIB)
    assert {name: address(layout, name) for name in places} == places
    assert layout["weights"].read_only


@pytest.mark.parametrize(
    ("name", "code", "text"),
    [
        ("wieghts", "HP420", "did you mean 'weights'"),
        ("weights.head", "HP420", "piece of the region 'weights'"),
        ("weights[0]", "HP420", "piece of the region 'weights'"),
        ("weights#0", "HP420", "piece of the region 'weights'"),
        ("#contents.0", "HP420", "there is no"),
        ("plain", "HP440", "memory of hipMalloc is freed only together with its addresses"),
        ("table", "HP440", "hipMallocManaged"),
        ("staging", "HP440", "host memory"),
        ("work", "HP440", "it has no memory"),
        ("unmapped", "HP440", "mapped nowhere"),
    ],
)
def test_what_cannot_sleep_is_refused_in_a_sentence(name: str, code: str, text: str, layout: Layout) -> None:
    before = layout.program
    with pytest.raises(ApplyError, match=text) as refused:
        layout.sleep(["cache", name])
    assert refused.value.diagnostics[0].code == code
    assert layout.program is before
    assert layout.asleep == {}


def test_wrong_arguments_are_pythons_own_errors(layout: Layout) -> None:
    with pytest.raises(ValueError, match="to is"):
        layout.sleep("weights", to="")
    with pytest.raises(ApplyError, match=r"HP420.*'hosts'\n  hint: did you mean 'host'\? .* \./hosts"):
        layout.sleep("weights", to="hosts")
    with pytest.raises(TypeError, match="one name or several, not nothing"):
        layout.sleep(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a name is text"):
        layout.sleep([1])  # type: ignore[list-item]


def test_memory_that_another_process_may_have_is_refused(layout: Layout) -> None:
    layout.sleep("open")  # it is not exported yet
    layout.wake()
    descriptor = layout.export("shared")
    with pytest.raises(ApplyError, match=r"HP440.*'shared' cannot sleep\n.*it was exported"):
        layout.sleep("open")
    layout.remap("open")  # other memory
    layout.sleep("open")
    layout.wake()
    os.close(descriptor)


def test_a_process_that_has_exported_memory_open_is_named(layout: Layout) -> None:
    descriptor = layout.export("shared")
    with subprocess.Popen(["sleep", "60"], pass_fds=[descriptor]) as other:
        try:
            with pytest.raises(ApplyError, match=rf"exported, and process {other.pid} \(sleep 60\) has its descriptor"):
                layout.sleep("open")
        finally:
            other.kill()
            os.close(descriptor)


def test_imported_memory_is_refused(sim: Simulator) -> None:
    given = {"given": {"bind": "it", "size": "2MiB", "shareable": "posix_fd"}}
    importing = {"theirs": {"mappings": [{"allocation": "given", "access": {"gpu.0": "rw"}}]}}
    plan = {"hipplan": 1, "devices": {"gpu": {"count": 2}}, "allocations": given, "reservations": importing}
    with hipplan.apply(PLAN, runtime="sim") as layout:
        descriptor = layout.export("shared")
        with (
            hipplan.apply(plan, runtime="sim", bind={"it": descriptor}) as other,
            pytest.raises(ApplyError, match=r"HP440.*'theirs' cannot sleep\n.*imported"),
        ):
            other.sleep("theirs")
        os.close(descriptor)


def test_a_release_that_gives_memory_back_only_with_its_range_is_refused(sim: Simulator) -> None:
    with (
        as_release(sim, "7.2.53211", "free_memory_with_reservation"),
        hipplan.apply(PLAN, runtime="sim") as layout,
    ):
        before = sim.alive()
        with pytest.raises(ApplyError, match=r"HP440.*'cache' cannot sleep\n.*only together with its address range"):
            layout.sleep("cache")
        assert sim.alive() == before
        assert layout.asleep == {}


def test_views_that_are_out_refuse_it_unless_by_force(layout: Layout, sim: Simulator) -> None:
    view = layout["cache"].__dlpack__(max_version=(1, 0))
    with pytest.raises(LayoutInUse, match="'cache'"):
        layout.sleep("cache")
    assert layout.asleep == {}
    layout.sleep(["weights", "cache"], force=True)
    with pytest.raises(LayoutInUse):
        layout.close()
    layout.wake()
    assert layout.leases == 1
    layout.fill("cache", 3)
    with pytest.raises(LayoutInUse, match="'cache'"):
        layout.sleep("cache")
    del view
    layout.sleep("cache")
    layout.wake()
    assert sim.read(address(layout, "cache"), 4 * MIB) == b"\3" * (4 * MIB)


def test_addresses_that_are_looked_at_stay_while_their_memory_sleeps(layout: Layout) -> None:
    view = layout["cache"].__dlpack__(max_version=(1, 0))
    layout.sleep("cache", force=True)
    less = PLAN | {"regions": {"weights": PLAN["regions"]["weights"]}}
    with pytest.raises(LayoutInUse, match="'cache'"):
        layout.update(less, lose="*")
    assert layout.asleep == {"cache": "host"}
    del view
    layout.update(less, lose="*")
    assert "cache" not in layout


def test_bytes_that_are_being_moved_are_not_put_to_sleep(layout: Layout) -> None:
    answers: list[str] = []

    def sleep(done: int, total: int) -> None:
        try:
            layout.sleep("cache", force=True)
        except RuntimeError as error:
            answers.append(str(error))

    layout.fill("cache", 3, on_bytes=sleep)
    assert answers and all("bytes are being copied already" in item for item in answers)
    assert layout.asleep == {}


def test_who_is_refused_hears_of_force_and_what_it_means(layout: Layout) -> None:
    view = layout["cache"].__dlpack__(max_version=(1, 0))
    with pytest.raises(LayoutInUse, match=r"force=True.*faults the GPU until wake"):
        layout.sleep("cache")
    del view


def test_a_copy_that_was_kept_is_used_again(layout: Layout, sim: Simulator) -> None:
    def pinned() -> set[Any]:
        return {key for key in sim.alive() if key[0] == "buffer"}

    place = address(layout, "cache")
    layout.fill("cache", 1)
    layout.fill("twice[0]", 1)  # so that there are lanes to both devices
    before = pinned()
    layout.sleep(["cache", "twice"])
    copies = pinned() - before
    layout.wake(retain=True)
    assert pinned() == before | copies
    layout.fill("cache", 2)
    layout.fill("twice[0]", 2)
    layout.sleep(["cache", "twice"], unchanged="twice")
    assert pinned() == before | copies
    layout.wake()
    wait_until_freed()
    assert pinned() == before
    assert sim.read(place, 4 * MIB) == b"\2" * (4 * MIB)  # what is not said to be unchanged is copied
    assert sim.read(address(layout, "twice"), 2 * MIB) == b"\1" * (2 * MIB)  # the caller's word counts
    with pytest.raises(ApplyError, match=r"HP420.*no copy of 'cache' was kept"):
        layout.sleep("cache", unchanged="cache")


def test_a_copy_that_was_kept_goes_with_a_drop_and_with_other_memory(layout: Layout, sim: Simulator) -> None:
    layout.fill("cache", 1)
    before = {key for key in sim.alive() if key[0] == "buffer"}
    layout.sleep("cache")
    layout.wake(retain=True)
    layout.grow("cache", by="2MiB")
    with pytest.raises(ApplyError, match="no copy of 'cache'"):
        layout.sleep("cache", unchanged="cache")
    layout.sleep("cache")
    layout.wake(retain=True)
    layout.sleep("cache", to="drop")
    wait_until_freed()
    assert {key for key in sim.alive() if key[0] == "buffer"} == before
    layout.wake()


def test_an_update_lets_sleep_what_is_the_same(layout: Layout, sim: Simulator) -> None:
    layout.sleep(["weights", "twice"])
    before = free(layout)
    assert not layout.update(PLAN)
    more = PLAN | {"buffers": {"other": {"kind": "device", "size": "1MiB"}}}
    assert "+ device other" in str(layout.update(more, lose="*"))
    layout.grow("cache", by="2MiB")
    assert layout.asleep == {"weights": "host", "part": "host"}
    assert free(layout)[0] == before[0]
    layout.update(PLAN, lose="*")
    layout.wake()
    assert sim.read(address(layout, "weights"), 8 * MIB) == b"\7" * (8 * MIB)
    assert layout.drift() == []


def test_an_update_cannot_change_what_sleeps(layout: Layout) -> None:
    layout.sleep(["weights", "twice"])
    regions = PLAN["regions"]
    for other in (
        PLAN | {"regions": regions | {"weights": regions["weights"] | {"size": "16MiB"}}},
        PLAN | {"regions": regions | {"weights": regions["weights"] | {"seal": False}}},
        PLAN | {"regions": regions | {"weights": regions["weights"] | {"reserve": "1GiB"}}},
        PLAN | {"reservations": PLAN["reservations"] | {"more": {"mappings": [{"allocation": "part"}]}}},
    ):
        before = layout.program
        with pytest.raises(HipplanError, match=r"HP441.*is asleep"):
            layout.update(other)
        assert layout.program is before


def test_an_update_removes_sleeping_memory_with_its_copy(layout: Layout, sim: Simulator) -> None:
    layout.sleep(["weights", "twice"])
    allocations = {name: allocation for name, allocation in PLAN["allocations"].items() if name != "part"}
    less = {"allocations": allocations, "regions": {"cache": PLAN["regions"]["cache"]}, "contents": {}}
    layout.update(PLAN | less | {"reservations": {"open": PLAN["reservations"]["open"]}}, lose="*")
    assert layout.asleep == {}
    assert not layout.wake()
    assert len([key for key in sim.alive() if key[0] == "reservation"]) == 2
    layout.update(PLAN)
    assert sim.read(address(layout, "weights"), MIB) == b"\7" * MIB


def test_a_layout_is_closed_asleep(sim: Simulator) -> None:
    with hipplan.apply(PLAN, runtime="sim") as layout:
        layout.sleep(["weights", "cache"])
    assert sim.alive() == set()


def test_a_wake_that_finds_no_room_is_refused_with_the_shortfall(layout: Layout, sim: Simulator) -> None:
    layout.sleep("cache")
    room = free(layout)[1]
    taken = {"regions": {"theirs": {"device": "gpu.1", "size": room - 2 * MIB}}}
    with hipplan.apply({"hipplan": 1, "devices": {"gpu": {"count": 2}}} | taken, runtime="sim"):
        before = sim.alive()
        with pytest.raises(ApplyError, match=r"HP442.*gpu.1 lacks 2MiB to wake: 4MiB are needed\n.*2MiB are free"):
            layout.wake()
        assert sim.alive() == before
        assert layout.asleep == {"cache": "host"}
    layout.wake()


def test_more_host_memory_than_there_is_is_refused(sim: Simulator) -> None:
    machine = hipplan.machine("sim-2").model_copy(update={"host_memory": 3 * MIB})
    program = hipplan.compile({key: value for key, value in PLAN.items() if key != "buffers"}, machine)
    with run(program, sim.runtime) as layout:
        with pytest.raises(hipplan.MachineError, match=r"HP303"):
            layout.sleep("cache")
        layout.sleep("cache", to="drop")


class Calls:
    """What callbacks were told, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[str, ...], bool]] = []
        self.layout: Layout | None = None

    def on_unmap(self, names: tuple[str, ...]) -> None:
        assert self.layout is not None
        self.calls.append(("unmap", names, bool(self.layout.asleep)))

    def on_map(self, names: tuple[str, ...]) -> None:
        assert self.layout is not None
        self.calls.append(("map", names, bool(self.layout.asleep)))


@pytest.fixture
def called(layout: Layout) -> Calls:
    result = Calls()
    result.layout = layout
    return result


def test_callbacks_come_before_it_goes_and_after_it_came_back(layout: Layout, called: Calls) -> None:
    layout.sleep(["cache", "twice"], on_unmap=called.on_unmap, on_map=called.on_map)
    layout.wake("cache")
    layout.wake("twice")
    layout.sleep("cache")
    layout.wake()

    assert called.calls == [("unmap", ("cache", "twice"), False), ("map", ("cache", "twice"), False)]


def test_on_map_is_not_called_for_memory_that_an_update_removed(layout: Layout, called: Calls) -> None:
    layout.sleep("cache", on_map=called.on_map)
    layout.update(PLAN | {"regions": {"weights": PLAN["regions"]["weights"]}}, lose="*")
    layout.wake()
    layout.update(PLAN)
    layout.wake()
    assert called.calls == []


def test_a_failed_sleep_calls_on_map(layout: Layout, called: Calls, sim: Simulator) -> None:
    sim.runtime.arm_faults("hipMemUnmap@3=hipErrorUnknown")  # the first is the probe's
    with pytest.raises(ApplyError, match=r"HP401"):
        layout.sleep("cache", on_unmap=called.on_unmap, on_map=called.on_map)
    sim.runtime.arm_faults("")

    assert called.calls == [("unmap", ("cache",), False), ("map", ("cache",), False)]
    assert layout.drift() == []
    layout.sleep("cache")
    layout.wake()
    assert len(called.calls) == 2


def test_a_callback_may_let_views_go_and_its_error_goes_on(layout: Layout) -> None:
    views = [layout["cache"].__dlpack__(max_version=(1, 0))]
    layout.sleep("cache", on_unmap=lambda names: views.clear())
    layout.wake()

    class Stop(Exception):
        pass

    def stop(names: tuple[str, ...]) -> None:
        raise Stop

    results: list[tuple[str, ...]] = []
    with pytest.raises(Stop):
        layout.sleep("cache", on_unmap=stop, on_map=results.append)
    assert (results, layout.asleep) == ([("cache",)], {})
    with pytest.raises(ApplyError, match=r"HP420.*on_unmap changed the layout"):
        layout.sleep("cache", on_unmap=lambda names: layout.grow("cache", by="2MiB"))


def test_a_sleeping_program_is_written_and_read(layout: Layout) -> None:
    layout.sleep("weights")
    layout.sleep("cache", to="drop")
    again = read(write(layout.program))

    assert again == layout.program
    assert again.asleep == layout.program.asleep
    assert again.asleep["weights"] == "host"


def test_a_sleeping_layout_answers_and_is_shown(layout: Layout) -> None:
    from hipplan.processes.answering import allow_verify, answer
    from hipplan.show.render import resources_table, verified_text
    from hipplan.show.render_json import layout_json

    allow_verify(layout)
    layout.sleep("weights")
    (reply,) = (one for one in answer({"want": "verify"})["layouts"] if one["plan"] == layout.program.name)
    assert (reply["differ"], reply["asleep"]) == (0, {"weights": "host"})
    shown_text = verified_text({"process": 1, "layouts": [reply]})
    assert "(process 1; weights sleeps): all" in shown_text
    assert "asleep" in resources_table(layout.program.resources, layout)
    (shown,) = (resource for resource in [*layout_json(layout)["resources"]] if resource["name"] == "weights")
    assert (shown["asleep"], shown["address"]) == ("host", None)
    layout.wake()


def test_a_hundred_cycles_leave_nothing(layout: Layout, sim: Simulator) -> None:
    layout.sleep("weights")
    layout.wake()
    wait_until_freed()
    alive, before = sim.alive(), free(layout)
    kinds = sorted(kind for kind, _ in alive)
    for _ in range(100 if WHOLE else 20):
        layout.sleep("weights")
        layout.wake()
    wait_until_freed()
    assert sorted(kind for kind, _ in sim.alive()) == kinds
    assert free(layout) == before
    assert len(layout.program.steps) < 100


def test_bytes_wait_in_a_file(layout: Layout, sim: Simulator, tmp_path: Path) -> None:
    layout.fill("cache", 5)
    sim.write(address(layout, "twice"), bytes(range(256)))
    alive, before = sim.alive(), free(layout)
    file = tmp_path / "copy.bin"
    change = layout.sleep(["weights", "cache", "twice"], to=file)
    assert "region cache: falls asleep, 4MiB, its bytes are in a file" in str(change)
    assert layout.asleep == {"weights": "file", "cache": "file", "part": "file"}
    assert file.read_bytes()[: 12 * MIB] == b"\7" * (8 * MIB) + b"\5" * (4 * MIB)
    assert file.stat().st_size == 14 * MIB
    assert {kind for kind, _ in sim.alive()} >= {kind for kind, _ in alive}
    with pytest.raises(ApplyError, match=r"HP420.*already holds the bytes of 'weights'"):
        layout.sleep("open", to=file)
    with pytest.raises(ApplyError, match=r"HP441"):
        layout.sleep("cache", to=tmp_path / "other.bin")
    layout.wake("cache", retain=True)
    layout.wake()
    assert list(tmp_path.iterdir()) == [file]  # it has the copy of `cache`
    assert sim.read(address(layout, "cache"), 4 * MIB) == b"\5" * (4 * MIB)
    assert sim.read(address(layout, "weights"), 8 * MIB) == b"\7" * (8 * MIB)
    assert sim.read(address(layout, "twice"), 256) == bytes(range(256))
    layout.sleep("cache", to=file)
    layout.wake()
    assert (list(tmp_path.iterdir()), free(layout)) == ([], before)


def test_a_file_that_was_kept_is_not_written_again(layout: Layout, sim: Simulator, tmp_path: Path) -> None:
    file = tmp_path / "copy.bin"
    layout.fill("cache", 5)
    layout.sleep("cache", to=file)
    layout.wake(retain=True)
    written = file.stat()
    layout.fill("cache", 6)
    layout.sleep("cache", to=file, unchanged="cache")
    assert file.stat() == written
    layout.wake()
    assert sim.read(address(layout, "cache"), 4 * MIB) == b"\5" * (4 * MIB)
    assert not file.exists()


@pytest.mark.parametrize("damage", ["removed", "truncated"])
def test_a_file_that_was_kept_and_is_damaged_is_not_relied_on(
    damage: str, layout: Layout, sim: Simulator, tmp_path: Path
) -> None:
    file = tmp_path / "copy.bin"
    layout.fill("cache", 5)
    layout.sleep("cache", to=file)
    layout.wake(retain=True)
    if damage == "removed":
        file.unlink()
    else:
        os.truncate(file, MIB)
    with pytest.raises(ApplyError, match=r"HP443.*the copy of 'cache' has changed(.|\n)*leave unchanged= out"):
        layout.sleep("cache", to=file, unchanged="cache")
    assert layout.asleep == {}
    layout.sleep("cache", to=file)
    layout.wake()
    assert sim.read(address(layout, "cache"), 4 * MIB) == b"\5" * (4 * MIB)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("call", ["sleep", "wake", "update", "fill"])
@pytest.mark.parametrize("to", ["host", "file"])
def test_a_callback_cannot_close_what_is_copied(
    to: str, call: str, force: bool, layout: Layout, sim: Simulator, tmp_path: Path
) -> None:
    refused: list[LayoutInUse] = []

    def closes(*_: object) -> None:
        with pytest.raises(LayoutInUse, match="this thread copies its bytes") as caught:
            layout.close(force=force)
        refused.append(caught.value)

    layout.fill("cache", 5)
    place = str(tmp_path / "copy.bin") if to == "file" else to
    layout.sleep("cache", to=place, on_bytes=closes if call == "sleep" else None)
    layout.wake(on_bytes=closes if call == "wake" else None)
    if call == "update":
        buffers = {**PLAN["buffers"], "new": {"kind": "device", "size": "1MiB"}}
        contents = {**PLAN["contents"], "new": {"value": 3}}
        layout.update({**PLAN, "buffers": buffers, "contents": contents}, on_step=closes)
    if call == "fill":
        layout.fill("cache", 5, on_bytes=closes)
    assert refused
    assert sim.read(address(layout, "cache"), 4 * MIB) == b"\5" * (4 * MIB)
    layout.close()
    assert layout.closed


@pytest.mark.parametrize("other", ["folder/../copy.bin", "linked/copy.bin"])
def test_one_file_has_one_name(other: str, layout: Layout, sim: Simulator, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path)
    layout.fill("cache", 5)
    layout.sleep("weights", to=tmp_path / "copy.bin")
    with pytest.raises(ApplyError, match=r"HP420.*already holds the bytes of 'weights'"):
        layout.sleep("cache", to=tmp_path / other)
    layout.wake()
    layout.sleep("cache", to=tmp_path / other)
    layout.wake()
    assert sim.read(address(layout, "cache"), 4 * MIB) == b"\5" * (4 * MIB)
    assert not (tmp_path / "copy.bin").exists()


def test_a_kept_file_is_removed_when_its_bytes_go_elsewhere(layout: Layout, tmp_path: Path) -> None:
    first, second = tmp_path / "first.bin", tmp_path / "second.bin"
    layout.sleep(["cache", "weights"], to=first)
    layout.wake(retain=True)
    layout.sleep("cache", to=first)  # the copy of `weights` in it goes: the file is written again
    layout.wake(retain=True)
    layout.sleep(["cache", "weights"], to=second)
    assert list(tmp_path.iterdir()) == [second]
    layout.wake(retain=True)
    layout.sleep(["cache", "weights"])
    assert list(tmp_path.iterdir()) == []
    layout.wake()


def test_the_order_of_names_does_not_matter_to_a_kept_file(layout: Layout, sim: Simulator, tmp_path: Path) -> None:
    file = tmp_path / "copy.bin"
    layout.fill("cache", 5)
    layout.sleep(["cache", "weights"], to=file, checksum=True)
    layout.wake(retain=True)
    written = file.stat()
    layout.sleep(["weights", "cache"], to=file, unchanged=["cache", "weights"])
    assert file.stat() == written
    layout.wake(retain=True)
    layout.sleep(["weights", "cache"], to=file, unchanged=["cache", "weights"])
    with file.open("r+b") as opened:
        opened.write(b"?")
    with pytest.raises(ApplyError, match=r"HP443.*the copy of '(cache|weights)"):  # its first checksum still counts
        layout.wake()
    with file.open("r+b") as opened:
        opened.write(b"\5")
    layout.wake()
    assert sim.read(address(layout, "cache"), 4 * MIB) == b"\5" * (4 * MIB)


@pytest.mark.parametrize("size", ["2MiB", "8MiB"])
def test_an_update_cannot_resize_a_region_that_sleeps(size: str, layout: Layout) -> None:
    layout.sleep("cache")
    cache = PLAN["regions"]["cache"] | {"size": size}
    with pytest.raises(ApplyError, match=r"HP441.*'cache', or part of it, is asleep"):
        layout.update({**PLAN, "regions": {**PLAN["regions"], "cache": cache}})
    layout.wake()


def test_a_file_that_cannot_be_written_or_read_changes_nothing(layout: Layout, tmp_path: Path) -> None:
    with pytest.raises(ApplyError, match=r"HP413.*cannot be written"):
        layout.sleep("cache", to=tmp_path / "none" / "copy.bin")
    with pytest.raises(ApplyError, match=r"HP420.*its extension names another format"):
        layout.sleep("cache", to=tmp_path / "copy.npy")
    assert layout.asleep == {}
    file = tmp_path / "copy.bin"
    layout.sleep("cache", to=file)
    file.rename(tmp_path / "elsewhere")
    with pytest.raises(ApplyError, match=r"HP443(.|\n)*No such file"):
        layout.wake()
    file.write_bytes(bytes(MIB))
    file.chmod(0o600)
    with pytest.raises(ApplyError, match=r"HP443(.|\n)*has 1,048,576 bytes, and had 4,194,304"):
        layout.wake()
    assert layout.asleep == {"cache": "file"}
    (tmp_path / "elsewhere").rename(file)
    layout.wake()
    assert layout.drift() == []


def test_a_checksum_detects_changed_bytes(layout: Layout, tmp_path: Path) -> None:
    file = tmp_path / "copy.bin"
    layout.sleep(["cache", "weights"], to=file, checksum=True)
    layout.sleep("twice", checksum=True)
    with file.open("r+b") as opened:
        opened.seek(MIB)
        was = opened.read(1)
        opened.seek(MIB)
        opened.write(b"?")
    layout.wake("twice")
    for _ in range(2):
        with pytest.raises(ApplyError, match=r"HP443.*the copy of 'cache' has changed"):
            layout.wake("cache")
        assert layout.asleep == {"cache": "file", "weights": "file"}
    layout.wake("weights")  # its own bytes are unchanged
    with file.open("r+b") as opened:
        opened.seek(MIB)
        opened.write(was)
    layout.wake()
    assert layout.drift() == []


@pytest.mark.parametrize("order", list(itertools.permutations(["cache", "weights", "twice"])))
@pytest.mark.parametrize("to", ["host", "file"])
def test_what_fell_asleep_together_wakes_in_any_order(
    to: str, order: tuple[str, ...], layout: Layout, sim: Simulator, tmp_path: Path
) -> None:
    layout.fill("cache", 5)
    layout.fill("twice[0]", 9)
    file = tmp_path / "copy.bin"
    layout.sleep(["cache", "weights", "twice"], to=file if to == "file" else to, checksum=True)
    for name in order:
        layout.wake(name)
        assert name not in layout.asleep
    assert sim.read(address(layout, "cache"), 4 * MIB) == b"\5" * (4 * MIB)
    assert sim.read(address(layout, "weights"), 8 * MIB) == b"\7" * (8 * MIB)
    assert sim.read(address(layout, "twice"), 2 * MIB) == b"\x09" * (2 * MIB)
    assert not file.exists()


THREE_PARTS: dict[str, Any] = {
    "hipplan": 1,
    "allocations": {f"part.{number}": {"size": "2MiB", "device": "gpu.0"} for number in range(3)},
    "reservations": {
        "whole": {"mappings": [{"allocation": f"part.{number}", "access": {"gpu.0": "rw"}} for number in range(3)]}
    },
}


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("to", ["host", "file"])
def test_memory_of_one_reservation_wakes_in_any_order(
    to: str, order: tuple[int, ...], sim: Simulator, tmp_path: Path
) -> None:
    file = tmp_path / "copy.bin"
    with hipplan.apply(THREE_PARTS, runtime="sim") as layout:
        for number in range(3):
            layout.fill(f"whole[{number}]", number + 1)
        layout.sleep("whole", to=file if to == "file" else to, checksum=True)
        for number in order:
            layout.wake(f"whole[{number}]")
        assert layout.asleep == {}
        for number in range(3):
            assert sim.read(address(layout, f"whole[{number}]"), 2 * MIB) == bytes([number + 1]) * (2 * MIB)
    assert not file.exists()


def test_a_copy_that_is_written_again_without_a_checksum_leaves_the_others_theirs(sim: Simulator) -> None:
    with hipplan.apply(THREE_PARTS, runtime="sim") as layout:
        for number in range(3):
            layout.fill(f"whole[{number}]", 1)
        layout.sleep("whole", checksum=True)
        layout.wake("whole[0]", retain=True)
        layout.fill("whole[0]", 3)
        layout.sleep("whole[0]")
        layout.wake()
        for number, value in enumerate(b"\3\1\1"):
            assert sim.read(address(layout, f"whole[{number}]"), 2 * MIB) == bytes([value]) * (2 * MIB)


def test_a_copy_that_was_kept_keeps_its_checksum(layout: Layout) -> None:
    layout.sleep("cache", checksum=True)
    layout.wake(retain=True)
    layout.sleep("cache", unchanged="cache", checksum=True)
    layout.wake(retain=True)
    layout.sleep("cache", unchanged="cache")  # without a checksum this time
    layout.wake()


KILLED = """
import os, sys
import hipplan
with hipplan.apply({"hipplan": 1, "regions": {"cache": {"size": "64MiB"}}}, runtime="sim") as layout:
    layout.sleep("cache", to=sys.argv[1], on_bytes=lambda done, total: len(sys.argv) > 2 and os.kill(os.getpid(), 9))
"""


def test_a_process_that_is_killed_while_it_writes_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    file = tmp_path / "copy.bin"
    line = [sys.executable, "-c", KILLED, file]
    done = subprocess.run([*line, "killed"], capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    assert list(tmp_path.iterdir()) in ([], [file])
    assert not file.exists() or file.stat().st_size == 64 * MIB
    assert subprocess.run(line).returncode == 0
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("to", ["host", "file", "drop", "mapped"])
def test_a_reservation_that_has_grown_beyond_its_addresses_sleeps(to: str, tmp_path: Path, sim: Simulator) -> None:
    """Its bytes went in one copy, which no driver makes over two ranges of addresses."""
    mapped = {"access": {"gpu.0": "rw"}, "mappings": [{"allocation": "a"}, {"allocation": "b"}]}
    sizes = {name: {"device": "gpu.0", "size": "2MiB"} for name in "ab"}
    plan = {"hipplan": 1, "allocations": sizes, "reservations": {"r": mapped}}
    with hipplan.apply(plan, runtime="sim") as layout:
        for _ in range(2):
            layout.grow("r", by="4MiB")
        for number in range(4):
            layout.fill(f"r[{number}]", number + 1, dtype="u8")
        layout.sleep("r", to=str(tmp_path / "copy.bin") if to == "file" else to)
        layout.wake()
        if to != "drop":
            assert [int(layout.read(f"r[{number}]", dtype="u8")[-1]) for number in range(4)] == [1, 2, 3, 4]
        assert layout.drift() == []
