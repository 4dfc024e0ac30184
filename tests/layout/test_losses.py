"""What an update loses: 56 pairs of plans, one harmless and one that loses something, as the documentation has it.

preview, its JSON and layout.update tell the two of each pair apart.
"""

from __future__ import annotations

import ast
import copy
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import hipplan
from hipplan.cli.main import run
from hipplan.errors import ApplyError
from hipplan.layout.layout import Layout
from hipplan.program import consent
from tests.conftest import Simulator
from tests.faults.change import facts, writable

MIB = 2**20
Plan = dict[str, Any]
Edit = Callable[[Plan], object]


class Pair(NamedTuple):
    """Two changes of one plan."""

    old: Plan
    harmless: Edit
    losing: Edit
    lost: str
    """What the second one loses: bytes, address, rights, or several."""


def plan(**nouns: Any) -> Plan:
    return {"hipplan": 1, "devices": {"gpu": {"count": 2}}, **nouns}


def put(path: str, value: Any) -> Edit:
    """Sets the value at a path of keys, as regions/cache/size."""

    def edit(data: Plan) -> None:
        *keys, last = path.split("/")
        for key in keys:
            data = data.setdefault(key, {})
        data[last] = value

    return edit


def drop(path: str) -> Edit:
    def edit(data: Plan) -> None:
        *keys, last = path.split("/")
        for key in keys:
            data = data[key]
        del data[last]

    return edit


def both(*edits: Edit) -> Edit:
    return lambda data: [edit(data) for edit in edits]


def renamed(noun: str, old: str, new: str) -> Edit:
    return lambda data: data[noun].update({new: data[noun].pop(old)})


def edited(data: Plan, edit: Edit) -> Plan:
    data = copy.deepcopy(data)
    edit(data)
    return data


def tensors(*names: str, rows: int = 64) -> Plan:
    return {name: {"dtype": "f32", "shape": [rows, 1024]} for name in names}


CACHE = plan(regions={"cache": {"device": "gpu.0", "size": "8MiB", "chunk": "2MiB", "reserve": "64MiB"}})
OPEN = plan(regions={"w": {"device": "gpu.0", "size": "4MiB", "access": {"gpu.0": "rw", "gpu.1": "r"}}})
MODEL = plan(regions={"w": {"device": "gpu.0", "size": "4MiB", "tensors": tensors("a", "b", "c")}})
FILLED = plan(
    regions={"w": {"device": "gpu.0", "size": "4MiB", "reserve": "8MiB", "chunk": "2MiB", "tensors": tensors("a", "b"),
                   "access": {"gpu.0": "rw", "gpu.1": "rw"}}},
    contents={"w.a": {"value": 1}, "w.b": {"value": 2}},
)  # fmt: skip
SEALED = copy.deepcopy(FILLED)
SEALED["regions"]["w"]["seal"] = True
MAPPED = plan(
    allocations={"a": {"device": "gpu.0", "size": "2MiB"}, "b": {"device": "gpu.1", "size": "4MiB"},
                 "part": {"device": "gpu.0", "size": "2MiB", "count": 3}},
    reservations={
        "r": {"size": "32MiB", "access": {"gpu.0": "rw", "gpu.1": "r"},
              "mappings": [{"allocation": "a", "at": 0}, {"allocation": "b", "at": "4MiB"}]},
        "parts": {"size": "32MiB", "access": {"gpu.0": "rw"}, "mappings": [{"allocation": "part.*"}]},
    },
)  # fmt: skip
IN_PART = plan(
    allocations={"a": {"device": "gpu.0", "size": "8MiB"}},
    reservations={"r": {"size": "32MiB", "access": {"gpu.0": "rw"}, "mappings": [{"allocation": "a", "size": "4MiB"}]}},
)
BUFFERS = plan(
    buffers={
        "heap": {"kind": "device", "device": "gpu.0", "size": "1MiB"},
        "staging": {"kind": "pinned", "size": "1MiB"},
        "table": {"kind": "managed", "size": "2MiB"},
        "pages": {"kind": "registered", "anonymous": {"size": "1MiB"}},
    },
    streams={"s": {"device": "gpu.0"}},
)
LINKED = plan(
    peers=[{"device": "gpu.0", "peer": "gpu.1"}],
    buffers={"x": {"kind": "device", "device": "gpu.1", "size": "1MiB"},
             "y": {"kind": "device", "device": "gpu.0", "size": "1MiB"}},
)  # fmt: skip
SPREAD = plan(
    regions={"w": {"devices": ["gpu.*"], "spread": "interleave", "chunk": "2MiB", "size": "8MiB", "reserve": "64MiB",
                   "access": {"owner": "rw", "others": "rw"}}}
)  # fmt: skip
FAMILY = plan(vars={"layers": 3}, regions={"layer": {"each": {"n": "$(layers)"}, "device": "gpu.0", "size": "2MiB"}})
FILES = plan(
    buffers={"read": {"kind": "registered", "file": "data.bin", "read_only": True},
             "written": {"kind": "registered", "file": "data2.bin"}},
)  # fmt: skip
_C = "regions/cache/"
_W = "regions/w/"
_R = "reservations/r/"

PAIRS = {
    "a region grows in its reserve; or shrinks": Pair(
        CACHE, put(_C + "size", "16MiB"), put(_C + "size", "4MiB"), "bytes"
    ),
    "a region grows in its reserve; or past it": Pair(
        CACHE, put(_C + "size", "64MiB"), put(_C + "reserve", "128MiB"), "address"
    ),
    "less is reserved; or more": Pair(CACHE, put(_C + "reserve", "32MiB"), put(_C + "reserve", "1GiB"), "address"),
    "the same chunk in other words; or another": Pair(
        CACHE, put(_C + "chunk", "2048KiB"), put(_C + "chunk", "4MiB"), "bytes"
    ),
    "a region is added; or removed": Pair(CACHE, put("regions/more", {"size": "2MiB"}), drop("regions/cache"), "bytes"),
    "the plan gets another name; or the region does": Pair(
        CACHE, put("name", "other"), renamed("regions", "cache", "kv"), "bytes"
    ),
    "a device may write too; or no longer reads": Pair(
        OPEN, put(_W + "access/gpu.1", "rw"), put(_W + "access/gpu.1", "none"), "rights"
    ),
    "a device may write too; or only reads": Pair(
        OPEN, put(_W + "access/gpu.1", "rw"), put(_W + "access/gpu.0", "r"), "rights"
    ),
    "the same access by a pattern; or of one device": Pair(
        plan(regions={"w": {"size": "2MiB", "access": {"gpu.0": "rw", "gpu.1": "rw"}}}),
        put(_W + "access", {"gpu.*": "rw"}), put(_W + "access", {"gpu.0": "rw"}), "rights",
    ),
    "the device has another name; or is another": Pair(
        plan(devices={"left": {"ordinal": 0}}, regions={"w": {"device": "left", "size": "2MiB"}}),
        both(put("devices", {"first": {"ordinal": 0}}), put(_W + "device", "first")),
        put("devices/left/ordinal", 1), "bytes rights",
    ),
    "contents of memory that stays; or on another device": Pair(
        FILLED, put("contents/w.a/value", 5), put(_W + "device", "gpu.1"), "bytes"
    ),
    "a tensor is added behind; or before": Pair(
        MODEL, put(_W + "tensors", tensors("a", "b", "c", "d")),
        put(_W + "tensors", tensors("z", "a", "b", "c")), "address"
    ),
    "the last tensor goes; or the first": Pair(
        MODEL, put(_W + "tensors", tensors("a", "b")), put(_W + "tensors", tensors("b", "c")), "address"
    ),
    "a tensor gets another type; or more rows": Pair(
        MODEL, put(_W + "tensors/a/dtype", "u32"), put(_W + "tensors/a/shape", [128, 1024]), "address"
    ),
    "tensors are called otherwise; or swapped": Pair(
        MODEL, put(_W + "tensors", tensors("x", "y", "z")), put(_W + "tensors", tensors("a", "c", "b")), "address"
    ),
    "the last of the tensors of an auto region is as large; or larger": Pair(
        plan(regions={"w": {"tensors": tensors("a", rows=512)}}),
        put(_W + "tensors/a/shape", [1024, 512]), put(_W + "tensors/a/shape", [1024, 1024]), "bytes address",
    ),
    "a tensor of all rows grows; or shrinks": Pair(
        plan(regions={"w": {"size": "4MiB", "chunk": "2MiB", "reserve": "8MiB",
                            "tensors": {"pages": {"dtype": "u8", "shape": [-1, 4096]}}}}),
        put(_W + "size", "8MiB"), put(_W + "size", "2MiB"), "bytes",
    ),
    "a seal goes; or comes": Pair(
        plan(regions={"w": {"size": "2MiB", "seal": True}, "x": {"size": "2MiB"}},
             contents={"w": {"value": 1}, "x": {"value": 1}}),
        put(_W + "seal", False), put("regions/x/seal", True), "rights",
    ),
    "sealed memory is filled on another device; or open memory is": Pair(
        plan(regions={name: {"device": "gpu.0", "size": "2MiB", "seal": name == "w", "access": {"gpu.*": "rw"}}
                      for name in "wx"},
             contents={"w": {"value": 1}, "x": {"value": 1}}),
        put(_W + "device", "gpu.1"), put("regions/x/device", "gpu.1"), "bytes",
    ),
    "all contents of sealed memory come again; or some": Pair(
        SEALED, put(_W + "device", "gpu.1"), both(put(_W + "device", "gpu.1"), drop("contents/w.b")), "bytes"
    ),
    "sealed memory gets other contents on another device; or no device may read it": Pair(
        SEALED, both(put(_W + "device", "gpu.1"), put("contents/w.b/value", 3)),
        both(put(_W + "device", "gpu.1"), put(_W + "access/gpu.0", "none")), "rights",
    ),
    "sealed memory comes again at its address; or at another": Pair(
        SEALED, put(_W + "device", "gpu.1"), put(_W + "reserve", "1GiB"), "address"
    ),
    "a new tensor of sealed memory has contents; or of open memory": Pair(
        plan(regions={name: {"size": "2MiB", "seal": name == "w", "tensors": tensors("a")} for name in "wx"},
             contents={"w.a": {"value": 1}, "x.a": {"value": 1}}),
        both(put(_W + "tensors", tensors("a", "b")), put("contents/w.b", {"value": 2})),
        both(put("regions/x/tensors", tensors("a", "b")), put("contents/x.b", {"value": 2})), "bytes",
    ),
    "a spread region grows; or loses a device": Pair(
        SPREAD, put(_W + "size", "12MiB"), put(_W + "devices", ["gpu.0"]), "bytes rights"
    ),
    "the same repetition by a list; or fewer": Pair(
        FAMILY, put("regions/layer/each", {"n": [0, 1, 2]}), put("vars/layers", 2), "bytes"
    ),
    "one more is repeated; or each is larger": Pair(
        FAMILY, put("vars/layers", 4), put("regions/layer/size", "4MiB"), "bytes address"
    ),
    "an allocation is added; or removed with its mapping": Pair(
        MAPPED, put("allocations/c", {"device": "gpu.0", "size": "2MiB"}),
        both(drop("allocations/b"), put(_R + "mappings", [{"allocation": "a", "at": 0}])), "bytes",
    ),
    "one more of a count; or one less": Pair(
        MAPPED, put("allocations/part/count", 4), put("allocations/part/count", 2), "bytes"
    ),
    "a mapping is added; or moves": Pair(
        MAPPED,
        put(_R + "mappings", [{"allocation": "a", "at": 0}, {"allocation": "b", "at": "4MiB"},
        {"allocation": "a", "at": "16MiB"}]),
        put(_R + "mappings", [{"allocation": "a", "at": 0}, {"allocation": "b", "at": "8MiB"}]), "address",
    ),
    "mappings in another order; or in each other's place": Pair(
        MAPPED, put(_R + "mappings", [{"allocation": "b", "at": "4MiB"}, {"allocation": "a", "at": 0}]),
        put(_R + "mappings", [{"allocation": "b", "at": 0}, {"allocation": "a", "at": "4MiB"}]), "address",
    ),
    "memory is mapped twice; or no longer at all": Pair(
        MAPPED, put("reservations/again", {"access": {"gpu.0": "r"}, "mappings": [{"allocation": "a"}]}),
        put(_R + "mappings", [{"allocation": "a", "at": 0}]), "address",
    ),
    "more of an allocation is mapped; or less": Pair(
        IN_PART, put(_R + "mappings", [{"allocation": "a"}]),
        put(_R + "mappings", [{"allocation": "a", "size": "2MiB"}]),
        "address",
    ),
    "an allocation of the same size; or a larger one": Pair(
        MAPPED, put("allocations/a/size", "2048KiB"), put("allocations/a/size", "4MiB"), "bytes"
    ),
    "an allocation that can be shared is added; or another becomes one": Pair(
        MAPPED, put("allocations/c", {"device": "gpu.0", "size": "2MiB", "shareable": "posix_fd"}),
        put("allocations/a/shareable", "posix_fd"), "bytes",
    ),
    "a smaller reservation; or a larger one": Pair(
        MAPPED, put(_R + "size", "16MiB"), put(_R + "size", "64MiB"), "address"
    ),
    "a mapping is opened; or closed": Pair(
        MAPPED, put(_R + "access/gpu.1", "rw"), put(_R + "access/gpu.1", "none"), "rights"
    ),
    "a device buffer is added; or removed": Pair(
        BUFFERS, put("buffers/more", {"kind": "device", "size": "1MiB"}), drop("buffers/heap"), "bytes"
    ),
    "a stream goes; or a buffer is larger": Pair(
        BUFFERS, drop("streams/s"), put("buffers/heap/size", "2MiB"), "bytes address"
    ),
    "pinned memory in other words; or with other flags": Pair(
        BUFFERS, put("buffers/staging/size", 1048576), put("buffers/staging/write_combined", True), "bytes address"
    ),
    "managed memory gets advice; or another size": Pair(
        BUFFERS, put("buffers/table/advice", [{"advise": "read_mostly"}]), put("buffers/table/size", "4MiB"),
        "bytes address"
    ),
    "managed memory is prefetched; or attached otherwise": Pair(
        BUFFERS, put("buffers/table/prefetch", [{"to": "gpu.1"}]), put("buffers/table/attach", "host"), "bytes address"
    ),
    "a buffer of another kind is added; or takes the place": Pair(
        BUFFERS, put("buffers/p", {"kind": "pinned", "size": "1MiB"}),
        put("buffers/staging", {"kind": "device", "size": "1MiB"}), "bytes",
    ),
    "a stream is added; or hipplan's own registered memory goes": Pair(
        BUFFERS, put("streams/t", {"device": "gpu.1"}), drop("buffers/pages"), "bytes"
    ),
    "a file to read is closed; or one that was writable": Pair(
        FILES, drop("buffers/read"), drop("buffers/written"), "bytes"
    ),
    "a link is added; or removed": Pair(LINKED, put("peers", "all"), drop("peers"), "rights"),
    "all links are written out; or only one": Pair(
        edited(LINKED, put("peers", "all")),
        put("peers", [{"device": "gpu.0", "peer": "gpu.1"}, {"device": "gpu.1", "peer": "gpu.0"}]),
        put("peers", [{"device": "gpu.0", "peer": "gpu.1"}]), "rights",
    ),
    "attached processes may write; or the owner only reads": Pair(
        CACHE, put(_C + "attached", "rw"), put(_C + "access", {"owner": "r"}), "rights"
    ),
    "a variable gets another name; or a reservation does": Pair(
        MAPPED, put("vars", {"unused": 1}), renamed("reservations", "r", "s"), "address"
    ),
    "access is written at the mappings; or the range is aligned": Pair(
        IN_PART, both(drop(_R + "access"),
                      put(_R + "mappings", [{"allocation": "a", "size": "4MiB", "access": {"gpu.0": "rw"}}])),
        put(_R + "alignment", "1GiB"), "address",
    ),
    "a tensor moves to another region; or the memory to another device": Pair(
        edited(MODEL, put("regions/x", {"size": "4MiB", "access": {"gpu.*": "rw"}})),
        both(drop(_W + "tensors"), put("regions/x/tensors", tensors("a"))), put("regions/x/device", "gpu.1"), "bytes",
    ),
    "advice goes; or another device is current": Pair(
        edited(BUFFERS, put("buffers/table/advice", [{"advise": "read_mostly"}])),
        drop("buffers/table/advice"), put("buffers/table/device", "gpu.1"), "bytes address",
    ),
    "a count becomes each; or is one less": Pair(
        plan(buffers={"b": {"kind": "device", "size": "1MiB", "count": 3}}),
        both(drop("buffers/b/count"), put("buffers/b/each", {"n": 3})), put("buffers/b/count", 2), "bytes",
    ),
    "a stream goes to another device; or a buffer does": Pair(
        BUFFERS, put("streams/s/device", "gpu.1"), put("buffers/heap/device", "gpu.1"), "bytes address"
    ),
    "the plan requires more; or an allocation is uncached": Pair(
        MAPPED, put("requires", {"vmm": True}), put("allocations/a/type", "uncached"), "bytes"
    ),
    "the devices are listed one by one; or in another order": Pair(
        SPREAD, put(_W + "devices", ["gpu.0", "gpu.1"]), put(_W + "devices", ["gpu.1", "gpu.0"]), "bytes"
    ),
    "contents are left out; or a region is a reservation": Pair(
        FILLED, drop("contents"),
        both(drop("contents"), drop("regions"), put("allocations/w", {"size": "4MiB"}),
             put("reservations/v", {"access": {"gpu.*": "rw"}, "mappings": [{"allocation": "w"}]})), "bytes",
    ),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("data.bin", "data2.bin"):
        (tmp_path / name).write_bytes(bytes(4096))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def changed(pair: Pair, edit: Edit) -> Plan:
    data = copy.deepcopy(pair.old)
    edit(data)
    assert json.dumps(data) != json.dumps(pair.old)
    return data


@pytest.mark.parametrize("what", PAIRS)
def test_preview_tells_them_apart(what: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair = PAIRS[what]
    (folder / "old.yaml").write_text(json.dumps(pair.old))
    line = ["preview", "new.yaml", "--from", "old.yaml", "--machine", "sim-2", "--fail-on-loss"]
    for edit, lost in ((pair.harmless, set[str]()), (pair.losing, set(pair.lost.split()))):
        (folder / "new.yaml").write_text(json.dumps(changed(pair, edit)))

        assert run(line) == (6 if lost else 0)
        last = capsys.readouterr().out.splitlines()[-1]
        assert last.endswith(" lost") == bool(lost)
        assert run([*line, "--format", "json"]) == (6 if lost else 0)
        shown = json.loads(capsys.readouterr().out)
        losses = [change["lost"] for change in shown["changes"] if change["lost"]]
        facts_of = {"bytes": "loses_bytes", "address": "address", "rights": "rights"}
        assert {kind for kind, key in facts_of.items() if any(loss[key] for loss in losses)} == lost
        assert shown["counts"]["bytes_lost"] == sum(loss["bytes"] for loss in losses)


@pytest.mark.parametrize("what", PAIRS)
def test_update_tells_them_apart(what: str, folder: Path, sim: Simulator) -> None:
    pair = PAIRS[what]
    with hipplan.apply(pair.old, runtime="sim") as layout:
        for number, (_, address) in enumerate(writable(layout)):
            sim.fill(address, number + 1, 64)
        before, places = facts(sim, layout), rights_by_address(sim, layout)
        layout.update(changed(pair, pair.harmless))
        after, now = facts(sim, layout), rights_by_address(sim, layout)
        assert before["bytes"].items() <= after["bytes"].items()
        assert all(now[address][device] >= right for address in places for device, right in enumerate(places[address]))
    with hipplan.apply(pair.old, runtime="sim") as layout:
        before, losing = facts(sim, layout), changed(pair, pair.losing)
        with pytest.raises(ApplyError, match="HP423") as caught:
            layout.update(losing)
        assert facts(sim, layout) == before
        assert caught.value.exit_code == 4
        layout.update(losing, lose=allowed_by(caught.value))
        assert layout.drift() == []


def rights_by_address(sim: Simulator, layout: Layout) -> dict[int, list[int]]:
    """The address of each mapping and buffer -> what each device may do there."""
    kinds = ("mapping", "device", "pinned", "managed")
    names = [
        resource.name for resource in layout.program.resources if resource.kind in kinds and "#" not in resource.name
    ]
    return {address: [sim.runtime.access(device, address) if "[" in name else 3 for device in (0, 1)]
            for name in names if (address := layout[name].address)}  # fmt: skip


def allowed_by(error: ApplyError) -> list[str]:
    """The argument that the message has for pasting."""
    (text,) = re.findall(r"lose=(\[.*\])$", error.diagnostics[0].hint)
    names: list[str] = ast.literal_eval(text)
    return names


# What only a live layout can lose, or a plan alone does not show.


def refused(layout: Layout, data: Plan, *words: str, **given: Any) -> ApplyError:
    """Tries the update, which is refused with these words and changes nothing."""
    program = layout.program
    with pytest.raises(ApplyError, match="HP423") as caught:
        layout.update(data, **given)
    assert layout.program is program
    assert layout.drift() == []
    for text in words:
        assert text in str(caught.value)
    return caught.value


def test_there_are_forty_pairs_and_every_kind_of_loss() -> None:
    assert len(PAIRS) >= 40
    assert {kind for pair in PAIRS.values() for kind in pair.lost.split()} == {"bytes", "address", "rights"}


def test_contents_make_up_for_bytes_only_while_nothing_could_write_since(sim: Simulator) -> None:
    elsewhere, back = edited(SEALED, put(_W + "device", "gpu.1")), SEALED
    with hipplan.apply(SEALED, runtime="sim") as layout:
        layout.update(elsewhere)  # recreated and sealed as it was loaded
        layout.update(back)
        layout.unseal("w")
        layout.fill("w.a", 9)
        refused(layout, elsewhere, "loses its bytes")
        layout.seal("w")
        refused(layout, elsewhere, "loses its bytes")
        assert layout.read("w.a")[0, 0] == 9
        layout.update(elsewhere, lose="w")
        layout.update(back)  # loaded and sealed again
        assert layout.read("w.a")[0, 0] == 1


def test_memory_that_was_cut_off_and_added_again_may_have_been_written(sim: Simulator) -> None:
    with hipplan.apply(SEALED, runtime="sim") as layout:
        layout.shrink("w", to="2MiB")
        layout.unseal("w")
        layout.grow("w", to="4MiB")
        layout.fill("w", 9)
        layout.seal("w")
        refused(layout, edited(SEALED, put(_W + "device", "gpu.1")), "would lose 4MiB of bytes")


def test_memory_that_an_update_has_sealed_may_have_been_written_before(sim: Simulator) -> None:
    with hipplan.apply(FILLED, runtime="sim") as layout:
        layout.fill("w.a", 9)
        refused(layout, SEALED, "gpu.0 loses write access")
        layout.update(SEALED, lose="w")
        refused(layout, edited(SEALED, put(_W + "device", "gpu.1")), "loses its bytes")
        layout.update(edited(SEALED, put(_W + "size", "6MiB")))
        assert layout.read("w.a")[0, 0] == 9


def test_sealed_memory_with_another_mapping_or_in_another_process_may_have_been_written() -> None:
    twice = edited(MAPPED, both(
        put(_R + "seal", True), put("contents", {"r[0]": {"value": 1}, "r[1]": {"value": 2}}),
        put("reservations/again", {"access": {"gpu.0": "rw"}, "mappings": [{"allocation": "a"}]}),
    ))  # fmt: skip
    shared = edited(twice, both(drop("reservations/again"), put("allocations/a/shareable", "posix_fd")))
    once = edited(twice, drop("reservations/again"))
    access = put(_R + "access", {"gpu.0": "rw", "gpu.1": "rw"})
    for data, is_refused in ((twice, True), (shared, True), (once, False)):
        with hipplan.apply(edited(data, access), runtime="sim") as layout:
            other = edited(data, both(access, put("allocations/a/device", "gpu.1")))
            if is_refused:
                refused(layout, other, "allocation a", "loses its bytes")
            else:
                layout.update(other)


def test_memory_that_sleeps_is_removed_with_its_only_copy_if_that_is_allowed(sim: Simulator, tmp_path: Path) -> None:
    without = plan()
    for to, lost in (("host", True), (str(tmp_path / "copy.bin"), True), ("drop", False)):
        with hipplan.apply(CACHE, runtime="sim") as layout:
            layout.sleep("cache", to=to)
            if lost:
                refused(layout, without, "region cache", "8MiB of bytes")
            layout.update(without, lose="cache" if lost else ())
            assert "cache" not in layout


def test_memory_that_was_grown_or_moved_by_hand_is_not_lost_in_silence(sim: Simulator) -> None:
    with hipplan.apply(CACHE, runtime="sim") as layout:
        layout.grow("cache", by="2MiB")
        refused(layout, CACHE, "shrinks, 10MiB -> 8MiB", "2MiB of bytes")
        layout.shrink("cache", to="8MiB")
        assert layout.update(CACHE).empty
    with hipplan.apply(edited(CACHE, put(_C + "access", {"gpu.*": "rw"})), runtime="sim") as layout:
        layout.remap("cache", device="gpu.1")
        refused(layout, edited(CACHE, put(_C + "access", {"gpu.*": "rw"})), "loses its bytes")


def test_imported_memory_is_lost_if_it_is_removed_but_not_if_it_is_passed_again(sim: Simulator) -> None:
    exporting = plan(allocations={"a": {"size": "2MiB", "shareable": "posix_fd"}})
    importing = edited(exporting, both(
        put("allocations/a/bind", "theirs"),
        put("reservations/r", {"access": {"gpu.0": "rw"}, "mappings": [{"allocation": "a"}]}),
    ))  # fmt: skip
    with hipplan.apply(exporting, runtime="sim") as first:
        descriptor = first.export("a")
        try:
            with hipplan.apply(importing, runtime="sim", bind={"theirs": descriptor}) as second:
                second.update(importing, bind={"theirs": descriptor})
                refused(second, plan(), "allocation a")
                second.update(plan(), lose="a")
        finally:
            os.close(descriptor)


def test_the_name_of_a_range_means_what_is_in_it_and_a_pattern_any_text(sim: Simulator) -> None:
    moved = edited(MODEL, put(_W + "tensors", tensors("z", "a", "b", "c")))
    with hipplan.apply(MODEL, runtime="sim") as layout:
        error = refused(layout, moved, "tensor w.a")
        assert allowed_by(error) == ["w.a", "w.b", "w.c"]
        assert allowed_by(refused(layout, moved, lose="w.[ab]")) == ["w.[ab]", "w.a", "w.b", "w.c"]
        assert allowed_by(refused(layout, moved, lose=["w.a", "*b"])) == ["w.a", "*b", "w.c"]
        layout.update(moved, lose="w")
        layout.update(MODEL, lose=["w.*"])


@pytest.mark.parametrize(
    ("pattern", "name", "means"),
    [
        ("*", "r[0]", True), ("r[0]", "r[0]", True), ("r[0]", "r0", False), ("a.*", "a.7", True), ("a.*", "ab", False),
        ("*.w", "l.0.w", True), ("l.*.w", "l.0.w", True), ("l.*.w", "l.w", False), ("ab*ba", "aba", False),
        ("ab*ba", "abba", True), ("*a*a*", "aa", True), ("*a*a*", "a", False), ("", "a", False), ("?", "a", False),
    ],
)  # fmt: skip
def test_a_pattern_means_names(pattern: str, name: str, means: bool) -> None:
    assert consent.matches(pattern, name) == means


def test_a_pattern_of_many_stars_takes_no_time() -> None:
    assert not consent.matches("*a" * 2000 + "b", "a" * 4000)


def test_a_family_is_named_as_one_only_if_all_of_it_is_lost(sim: Simulator) -> None:
    larger, fewer = edited(FAMILY, put("regions/layer/size", "4MiB")), edited(FAMILY, put("vars/layers", 1))
    with hipplan.apply(FAMILY, runtime="sim") as layout:
        assert allowed_by(refused(layout, larger)) == ["layer.*"]
        assert allowed_by(refused(layout, fewer)) == ["layer.1", "layer.2"]


def test_what_is_lost_in_very_many_places_is_listed_in_part(sim: Simulator) -> None:
    many = plan(buffers={f"b{number}": {"kind": "pinned", "size": 4096} for number in range(50)})
    with hipplan.apply(many, runtime="sim") as layout:
        error = refused(layout, plan(), "200KiB of bytes", "and 30 more")
        assert allowed_by(error) == ["*"]


@pytest.mark.parametrize("wrong", [7, [1], None, {"a": 1}.items()], ids=str)
def test_names_to_lose_are_text(wrong: Any, sim: Simulator) -> None:
    with hipplan.apply(CACHE, runtime="sim") as layout, pytest.raises(TypeError, match="name"):
        layout.update(CACHE, lose=wrong)
