"""Contents: in a plan, on a live layout; on the simulator, whose memory is real."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hipplan
import hipplan.files.values
import hipplan.layout.run
from hipplan.errors import ApplyError, MachineError, PlanError
from hipplan.layout.layout import Layout
from hipplan.layout.options import Options
from hipplan.layout.run import run
from hipplan.machines.profiles import load_machine
from hipplan.program.content_steps import MemoryPart
from hipplan.program.memory import Memory
from hipplan.program.resources import Resource
from tests.conftest import Simulator
from tests.python_calls import calls_of

MIB = 2**20
RNG = numpy.random.default_rng(7)


def plan(contents: dict[str, Any], **nouns: Any) -> dict[str, Any]:
    return {"hipplan": 1, "devices": {"gpu": {"count": 2}}, **nouns, "contents": contents}


BUFFERS = {
    "scratch": {"kind": "device", "size": 64},
    "other": {"kind": "device", "device": "gpu.1", "size": 64},
    "staging": {"kind": "pinned", "size": 64},
    "table": {"kind": "managed", "size": 64},
    "fresh": {"kind": "registered", "anonymous": {"size": 64}},
}
REGIONS: dict[str, Any] = {
    "r": {"tensors": {"a": {"dtype": "f32", "shape": [4, 6]}, "b": {"dtype": "bf16", "shape": [8]}}},
    "wide": {"devices": ["gpu.*"], "spread": "interleave", "chunk": "2MiB",
             "tensors": {"t": {"dtype": "u8", "shape": [3 * 2 * MIB - 100, 2]}}},
}  # fmt: skip


def bytes_of(layout: Layout, name: str) -> bytes:
    piece = layout[name]
    if layout.runtime.pointer_attributes(piece.address).kind == "host":
        return bytes(memoryview(piece.view("u8")))
    return layout.runtime.read(piece.address, piece.nbytes)


@pytest.mark.parametrize("name", BUFFERS)
@pytest.mark.parametrize(("value", "dtype"), [(0, "u8"), (255, "u8"), (1.5, "f32"), (-2, "i64"), (1.0, "bf16")])
def test_a_value_fills_every_kind_of_memory(name: str, value: float, dtype: str, sim: Simulator) -> None:
    filled = plan({name: {"value": value, "dtype": dtype}}, buffers=BUFFERS)
    with hipplan.apply(filled, runtime="sim") as layout:
        expected = hipplan.files.values.encode(dtype, value)

        assert bytes_of(layout, name) == expected * (64 // len(expected))


def test_a_tensor_has_a_dtype_of_its_own_and_its_neighbours_stay(sim: Simulator) -> None:
    with hipplan.apply(plan({"r": {"value": 7}, "r.a": {"value": 2.5}}, regions=REGIONS), runtime="sim") as layout:
        assert numpy.frombuffer(bytes_of(layout, "r.a"), "<f4").tolist() == [2.5] * 24
        assert bytes_of(layout, "r.b") == b"\7" * 16


def test_large_fills_of_any_pattern_over_two_devices(sim: Simulator) -> None:
    with hipplan.apply(plan({}, regions=REGIONS), runtime="sim") as layout:
        layout.fill("wide", 0x01020304, dtype="u32")

        assert set(bytes_of(layout, "wide.t").replace(b"\4\3\2\1", b"")) == set()


def files_in(folder: Path) -> dict[str, numpy.ndarray[Any, Any]]:
    """a.npy, raw.bin and m.safetensors, and what is in them."""
    library = pytest.importorskip("safetensors.numpy")
    arrays = {
        "a": RNG.random((4, 6), "f4"), "b": RNG.integers(0, 255, 16, "u1"), "wide": RNG.random((8, 12), "f4"),
    }  # fmt: skip
    numpy.save(folder / "a.npy", arrays["a"])
    arrays["b"].tofile(folder / "raw.bin")
    library.save_file({"a": arrays["a"], "wide": arrays["wide"]}, folder / "m.safetensors")
    return arrays


@pytest.mark.parametrize(
    "content",
    [
        {"file": "a.npy"},
        {"file": "m.safetensors"},
        {"file": "m.safetensors", "tensor": "a"},
        {"file": "m.safetensors", "tensor": "wide", "part": 1, "parts": 2},
    ],
)
def test_tensors_are_loaded(content: dict[str, Any], sim: Simulator, tmp_path: Path) -> None:
    arrays = files_in(tmp_path)
    shape = [4, 12] if "part" in content else [4, 6]
    expected = arrays["wide"][4:] if "part" in content else arrays["a"]
    document = plan({"r.a": {**content, "file": str(tmp_path / content["file"])}},
                    regions={"r": {"tensors": {"a": {"dtype": "f32", "shape": shape}}}})  # fmt: skip
    with hipplan.apply(document, runtime="sim") as layout:
        assert bytes_of(layout, "r.a") == expected.tobytes()


@pytest.mark.parametrize("name", BUFFERS)
def test_bytes_are_loaded_into_every_kind_of_memory(name: str, sim: Simulator, tmp_path: Path) -> None:
    data = RNG.bytes(100)
    (tmp_path / "raw.bin").write_bytes(data)
    with hipplan.apply(
        plan({name: {"file": str(tmp_path / "raw.bin"), "at": 36}}, buffers=BUFFERS), runtime="sim"
    ) as layout:
        assert bytes_of(layout, name) == data[36:]


def test_a_region_takes_its_tensors_by_name_from_several_files(sim: Simulator, tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy")
    a, b = RNG.random((4, 6), "f4"), RNG.integers(0, 2**16, 8, "u2")
    library.save_file({"a": a, "unused": a}, tmp_path / "1.safetensors")
    library.save_file({"b": b}, tmp_path / "2.safetensors")
    index = tmp_path / "m.safetensors.index.json"
    index.write_text('{"weight_map": {"a": "1.safetensors", "unused": "1.safetensors", "b": "2.safetensors"}}')
    regions = {"r": {"tensors": {"b": {"dtype": "u16", "shape": [8]}, "a": {"dtype": "f32", "shape": [4, 6]}}}}
    with hipplan.apply(plan({"r": {"file": str(index)}}, regions=regions), runtime="sim") as layout:
        assert bytes_of(layout, "r.a") == a.tobytes()
        assert bytes_of(layout, "r.b") == b.tobytes()


@settings(max_examples=25)
@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    axis=st.integers(0, 2),
    parts=st.integers(2, 4),
    spread=st.booleans(),
)
def test_each_part_is_what_numpy_cuts(
    shape: list[int], axis: int, parts: int, spread: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    axis %= len(shape)
    whole = list(shape)
    whole[axis] *= parts
    array = numpy.arange(numpy.prod(whole), dtype="<i4").reshape(whole)
    path = tmp_path_factory.getbasetemp() / "part.npy"
    numpy.save(path, array)
    tensor = {"dtype": "i32", "shape": shape}
    region = {"devices": ["gpu.*"]} if spread else {}
    regions = {f"r{n}": {**region, "tensors": {"t": tensor}} for n in range(parts)}
    contents = {f"r{n}.t": {"file": str(path), "part": n, "parts": parts} for n in range(parts)}
    with hipplan.apply(plan(contents, regions=regions), runtime="sim") as layout:
        for n, expected in enumerate(numpy.split(array, parts, axis)):
            assert bytes_of(layout, f"r{n}.t") == expected.tobytes()


@pytest.mark.parametrize("source", BUFFERS)
@pytest.mark.parametrize("to", BUFFERS)
def test_copies_between_all_kinds_of_memory(source: str, to: str, sim: Simulator) -> None:
    if source == to:
        return
    with hipplan.apply(
        plan({source: {"value": 0x0102, "dtype": "u16"}, to: {"copy_of": source}}, buffers=BUFFERS), runtime="sim"
    ) as layout:
        assert bytes_of(layout, to) == b"\2\1" * 32


def test_a_copy_between_regions_that_are_cut_otherwise(sim: Simulator) -> None:
    size = 3 * 2 * MIB
    regions = {
        "one": {"devices": ["gpu.0", "gpu.1"], "spread": "interleave", "chunk": "2MiB", "size": size},
        "two": {"devices": ["gpu.1", "gpu.0"], "chunk": "1MiB", "size": size},
    }
    with hipplan.apply(plan({}, regions=regions), runtime="sim") as layout:
        data = RNG.bytes(size)
        layout.runtime.write(layout["one"].address, data)
        layout.copy("one", "two")

        assert bytes_of(layout, "two") == data


@pytest.mark.parametrize(
    ("name", "suffix"),
    [("r.a", "npy"), ("r.a", "safetensors"), ("r", "safetensors"), ("r", "bin"), ("staging", "npy"), ("table", "bin"),
     ("wide.t", "npy")],
)  # fmt: skip
def test_what_is_saved_is_loaded_again(name: str, suffix: str, sim: Simulator, tmp_path: Path) -> None:
    path = tmp_path / f"x.{suffix}"
    with hipplan.apply(plan({}, buffers=BUFFERS, regions=REGIONS), runtime="sim") as layout:
        data = RNG.bytes(layout[name].nbytes)
        layout.runtime.write(layout[name].address, data)
        layout.save(name, path)
        members = ["r.a", "r.b"] if (name, suffix) == ("r", "safetensors") else [name]
        before = {member: bytes_of(layout, member) for member in members}
        layout.fill(name, 0) if name != "r.a" else layout.fill(name, 0.0)
        assert bytes_of(layout, members[0]).strip(b"\0") == b""
        layout.load(name, path)

        assert {member: bytes_of(layout, member) for member in members} == before
    assert list(tmp_path.iterdir()) == [path]


def test_numpy_and_the_safetensors_library_read_what_is_saved(sim: Simulator, tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy")
    with hipplan.apply(plan({"r.a": {"value": 3.0}, "r.b": {"value": 1.0}}, regions=REGIONS), runtime="sim") as layout:
        layout.save("r.a", tmp_path / "a.npy")
        layout.save("r", tmp_path / "r.safetensors")
        layout.save("r.a", tmp_path / "a.safetensors")

        assert numpy.load(tmp_path / "a.npy").tolist() == numpy.full((4, 6), 3.0).tolist()
        assert library.load_file(tmp_path / "a.safetensors")["a"].dtype == numpy.float32
        with pytest.importorskip("safetensors").safe_open(tmp_path / "r.safetensors", "numpy") as file:
            assert list(file.keys()) == ["a", "b"]
            assert (file.get_slice("b").get_dtype(), file.get_slice("b").get_shape()) == ("BF16", [8])
        with pytest.raises(ApplyError, match="NumPy has no bf16"):
            layout.save("r.b", tmp_path / "b.npy")
        with pytest.raises(ApplyError, match="HP413"):
            layout.save("r.a", tmp_path / "none" / "a.npy")


def test_more_than_the_lanes_hold_goes_in_pieces_with_progress(sim: Simulator, tmp_path: Path) -> None:
    size = 36 * 2**20 + 12345
    data = RNG.bytes(size)
    (tmp_path / "raw.bin").write_bytes(data)
    seen: list[tuple[int, int]] = []
    buffers = {"b": {"kind": "device", "size": size}}
    document = plan({"b": {"file": str(tmp_path / "raw.bin")}}, buffers=buffers)
    with hipplan.apply(document, runtime="sim", on_bytes=lambda done, total: seen.append((done, total))) as layout:
        assert bytes_of(layout, "b") == data
        layout.save("b", tmp_path / "back.bin")

    assert (tmp_path / "back.bin").read_bytes() == data
    assert seen[-1] == (size, size)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def codes(document: Any, kind: type[hipplan.HipplanError]) -> list[str]:
    with pytest.raises(kind) as caught:
        hipplan.compile(hipplan.load(document), hipplan.machine("sim-2"))
    return [diagnostic.code for diagnostic in caught.value.diagnostics]


@pytest.mark.parametrize(
    ("contents", "code"),
    [
        ({"nothing": {"value": 0}}, "HP213"),
        ({"scratch": {"copy_of": "nothing"}}, "HP213"),
        ({"scratch": {"copy_of": "scratch"}}, "HP213"),
        ({"scratch": {"copy_of": "r.a"}}, "HP421"),
        ({"scratch": {}}, "HP107"),
        ({"scratch": {"value": 0, "file": "x"}}, "HP107"),
        ({"scratch": {"file": "x", "dtype": "f32"}}, "HP107"),
        ({"scratch": {"value": 0, "at": 4}}, "HP107"),
        ({"scratch": {"file": "x", "part": 0}}, "HP107"),
        ({"scratch": {"file": "x", "part": 0, "parts": 2}}, "HP107"),
        ({"scratch": {"file": "x", "tensor": "a"}}, "HP107"),
        ({"scratch": {"file": "x.npy", "at": 1}}, "HP107"),
        ({"scratch": {"file": "x.npy", "tensor": "a"}}, "HP107"),
        ({"scratch": {"file": "x.safetensors", "at": 0}}, "HP107"),
        ({"scratch": {"file": "x.safetensors.index.json", "at": 0}}, "HP107"),
        ({"scratch": {"file": "x\0.npy"}}, "HP105"),
        ({"scratch": {"file": ""}}, "HP105"),
        ({"scratch": {"file": "x", "part": 2, "parts": 2}}, "HP105"),
        ({"scratch": {"value": 256}}, "HP105"),
        ({"scratch": {"value": "0"}}, "HP103"),
        ({"r.a": {"value": 1, "dtype": "f32"}}, "HP107"),
        ({"r.a": {"value": True}}, "HP105"),
        ({"scratch": {"value": 0, "size": 3}}, "HP101"),
    ],
)
def test_what_contents_cannot_be(contents: dict[str, Any], code: str) -> None:
    assert codes(plan(contents, buffers=BUFFERS, regions=REGIONS), PlanError) == [code]


@pytest.mark.parametrize(
    ("contents", "code"),
    [
        ({"r": {"copy_of": "scratch"}}, "HP421"),
        ({"r.a": {"copy_of": "r.i"}}, "HP421"),
        ({"r.a": {"copy_of": "r"}}, "HP421"),
        ({"r": {"file": "x.npy"}}, "HP421"),
    ],
)
def test_what_does_not_fit_is_reported_when_it_is_compiled(contents: dict[str, Any], code: str) -> None:
    regions = {
        "r": {
            "tensors": {
                "a": {"dtype": "f32", "shape": [4]},
                "i": {"dtype": "i32", "shape": [4]},
                "a2": {"dtype": "f32", "shape": [5]},
            }
        },
    }
    assert codes(plan(contents, buffers=BUFFERS, regions=regions), MachineError) == [code]


def test_a_wrong_file_is_reported_with_its_place_before_any_driver_call(sim: Simulator, tmp_path: Path) -> None:
    numpy.save(tmp_path / "f8.npy", numpy.zeros((4, 6)))
    (tmp_path / "short.bin").write_bytes(bytes(63))
    path = tmp_path / "plan.yaml"
    path.write_text(
        "hipplan: 1\n"
        "regions: {r: {tensors: {a: {dtype: f32, shape: [4, 6]}}}}\n"
        "buffers: {b: {kind: device, size: 64}, c: {kind: pinned, size: 64}}\n"
        "contents:\n"
        "  r.a: {file: f8.npy}\n"
        "  b: {file: short.bin}\n"
        "  c: {file: none.bin}\n"
    )
    program = hipplan.compile(hipplan.load(path), hipplan.machine("sim-2"))
    sim.runtime.arm_faults("*@1000000=1")
    with pytest.raises(ApplyError) as caught:
        run(program, sim.runtime)
    diagnostic = caught.value.diagnostics

    assert sim.runtime.calls_counted() == 0
    assert [(item.code, item.span.line, item.span.column) for item in diagnostic if item.span] == [
        ("HP421", 5, 15), ("HP421", 6, 13), ("HP405", 7, 13)
    ]  # fmt: skip
    assert caught.value.exit_code == 4


def test_files_are_those_of_the_folder_in_which_the_plan_was_loaded(
    sim: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffers = {"loaded": {"kind": "pinned", "size": 4096}, "mapped": {"kind": "registered", "file": "data.bin"}}
    plan = {"hipplan": 1, "buffers": buffers, "contents": {"loaded": {"file": "data.bin"}}}
    for folder, byte in (("here", b"1"), ("here/below", b"2")):
        (tmp_path / folder / "plans").mkdir(parents=True)
        (tmp_path / folder / "plans" / "data.bin").write_bytes(byte * 4096)
        (tmp_path / folder / "plans" / "plan.yaml").write_text(json.dumps(plan))
    monkeypatch.chdir(tmp_path / "here")
    loaded = hipplan.load("plans/plan.yaml")
    assert "plans/data.bin" in loaded.files
    monkeypatch.chdir(tmp_path / "here" / "below")
    with hipplan.apply(loaded, runtime="sim") as layout:
        assert {layout.read(name).tobytes()[:1] for name in ("loaded", "mapped")} == {b"1"}
    assert str(tmp_path / "here" / "plans" / "data.bin") in loaded.files


def test_what_was_dropped_comes_back_from_the_same_file(
    sim: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also once the working folder has changed; an update takes files from where it is called."""
    plan = {"hipplan": 1, "regions": {"b": {"size": 2 * MIB}}, "contents": {"b": {"file": "data.bin"}}}
    for folder, byte in ((tmp_path, b"1"), (tmp_path / "below", b"2")):
        folder.mkdir(exist_ok=True)
        (folder / "data.bin").write_bytes(byte * 2 * MIB)
    monkeypatch.chdir(tmp_path)
    with hipplan.apply(plan, runtime="sim") as layout:
        monkeypatch.chdir(tmp_path / "below")
        layout.sleep("b", to="drop")
        layout.wake()
        assert {*layout.read("b").tobytes()} == {*b"1"}
        more = plan | {"streams": {"other": {}}}
        assert "note: other contents of b are not loaded" in str(layout.update(more))
        assert {*layout.read("b").tobytes()} == {*b"1"}
        layout.update({"hipplan": 1}, lose="*")
        layout.update(plan)
        assert {*layout.read("b").tobytes()} == {*b"2"}
        monkeypatch.chdir(tmp_path)
        layout.sleep("b", to="drop")
        layout.wake()
        assert {*layout.read("b").tobytes()} == {*b"2"}
        (tmp_path / "below").rename(tmp_path / "renamed")
        monkeypatch.chdir(tmp_path / "renamed")
        layout.sleep("b", to="drop")
        layout.wake()
        assert {*layout.read("b").tobytes()} == {*b"2"}
        assert "note" not in str(layout.update(plan | {"streams": {"other": {}}}))


def test_a_program_does_not_depend_on_where_it_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data.bin").write_bytes(b"1" * MIB)
    monkeypatch.chdir(tmp_path)
    plan = {"hipplan": 1, "buffers": {"b": {"kind": "pinned", "size": MIB}}, "contents": {"b": {"file": "data.bin"}}}
    loaded = hipplan.load(plan)
    here = hipplan.compile(loaded, "sim-2")
    monkeypatch.chdir("/")
    assert hipplan.compile(loaded, "sim-2") == here


def test_a_file_that_becomes_shorter_meanwhile_rolls_back(sim: Simulator, tmp_path: Path) -> None:
    path = tmp_path / "raw.bin"
    path.write_bytes(bytes(64))
    program = hipplan.compile(
        hipplan.load(plan({"scratch": {"file": str(path)}}, buffers=BUFFERS)), hipplan.machine("sim-2")
    )

    def cut_short(number: int, step: object) -> None:
        os.truncate(path, 63)

    with pytest.raises(ApplyError, match="became shorter"):
        run(program, sim.runtime, Options(on_step=cut_short))
    assert sim.alive() == set()


def test_what_progress_raises_stops_and_rolls_back(sim: Simulator, tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hipplan.apply(plan({"scratch": {"value": 0}}, buffers=BUFFERS), runtime="sim", on_bytes=stop)
    assert sim.alive() == set()


def test_a_failure_on_a_live_layout_leaves_it_unchanged(sim: Simulator, tmp_path: Path) -> None:
    with hipplan.apply(plan({}, buffers=BUFFERS), runtime="sim") as layout:
        before = sim.alive()
        for n in range(1, 40):
            sim.runtime.arm_faults(f"*@{n}=hipErrorOutOfMemory")
            try:
                layout.fill("scratch", 1)
            except ApplyError as error:
                assert error.code == 2
                assert sim.alive() in (before, before | sim.alive())
            if not sim.runtime.faults_fired():
                break
        else:
            pytest.fail("it never came through")
        sim.runtime.arm_faults("")
        assert bytes_of(layout, "scratch") == b"\1" * 64
    assert sim.alive() == set()


def test_a_layout_does_not_close_while_bytes_are_moved(sim: Simulator, tmp_path: Path) -> None:
    layout = hipplan.apply(plan({}, buffers=BUFFERS), runtime="sim")
    inside, go_on = threading.Event(), threading.Event()

    def wait(done: int, total: int) -> None:
        inside.set()
        go_on.wait(300)

    thread = threading.Thread(target=lambda: layout.fill("scratch", 1, on_bytes=wait))
    thread.start()
    inside.wait(300)
    with pytest.raises(hipplan.LayoutInUse):
        layout.close()
    go_on.set()
    thread.join()
    layout.close()


@pytest.mark.parametrize("call", ["hipMemcpyAsync", "hipStreamSynchronize"])
@pytest.mark.parametrize("n", [1, 3, 8])
def test_a_failure_in_one_lane_stops_all_and_rolls_back(call: str, n: int, sim: Simulator, tmp_path: Path) -> None:
    size = 64 * 2**20
    (tmp_path / "raw.bin").write_bytes(bytes(size))
    buffers = {f"b{device}": {"kind": "device", "device": f"gpu.{device}", "size": size} for device in (0, 1)}
    document = plan({name: {"file": str(tmp_path / "raw.bin")} for name in buffers}, buffers=buffers)
    program = hipplan.compile(hipplan.load(document), hipplan.machine("sim-2"))
    sim.runtime.arm_faults(f"{call}@{n}=hipErrorUnknown")
    with pytest.raises(ApplyError) as caught:
        run(program, sim.runtime)

    assert (caught.value.call, caught.value.code) == (call, 999)
    assert sim.runtime.faults_fired() == 1
    assert sim.alive() == set()


def test_an_update_fills_what_is_new_and_leaves_what_stays(sim: Simulator, tmp_path: Path) -> None:
    (tmp_path / "raw.bin").write_bytes(b"\5" * 64)
    small = {"a": BUFFERS["staging"]}
    with hipplan.apply(plan({"a": {"value": 1}}, buffers=small), runtime="sim") as layout:
        numpy.asarray(layout["a"])[:] = 9
        buffers = {**small, "b": BUFFERS["other"], "c": BUFFERS["fresh"]}
        contents = {"a": {"value": 2}, "b": {"file": str(tmp_path / "raw.bin")}, "c": {"copy_of": "b"}}
        layout.update(plan(contents, buffers=buffers))

        assert {name: set(bytes_of(layout, name)) for name in "abc"} == {"a": {9}, "b": {5}, "c": {5}}
        again = layout.update(plan({**contents, "b": {"value": 3}}, buffers=buffers))
        message = "no changes\nnote: other contents of b are not loaded: their bytes stay unchanged"
        assert (str(again), bool(again), set(bytes_of(layout, "b"))) == (message, False, {5})
        before = sim.alive()
        with pytest.raises(ApplyError, match="HP405"):
            more = {**buffers, "d": BUFFERS["scratch"]}
            layout.update(plan({"d": {"file": str(tmp_path / "none.bin")}}, buffers=more))
        assert sim.alive() == before


def test_a_sealed_region_is_read_and_not_written(sim: Simulator, tmp_path: Path) -> None:
    with hipplan.apply(plan({"r.a": {"value": 2.0}}, regions=REGIONS), runtime="sim") as layout:
        layout.seal("r")
        layout.save("r.a", tmp_path / "a.npy")
        with pytest.raises(ApplyError, match=r"no device may write 'r\.a'\n.*it is sealed: call unseal\(\)"):
            layout.load("r.a", tmp_path / "a.npy")
        layout.unseal("r")
        layout.load("r.a", tmp_path / "a.npy")


def test_what_a_grown_region_has_is_saved_and_loaded(sim: Simulator, tmp_path: Path) -> None:
    tensors = {"t": {"dtype": "u8", "shape": [-1, 1024]}}
    region = {"size": "2MiB", "chunk": "2MiB", "reserve": "8MiB", "tensors": tensors}
    with hipplan.apply(plan({"c.t": {"value": 1}}, regions={"c": region}), runtime="sim") as layout:
        layout.grow("c", to="6MiB")
        layout.fill("c.t", 2)
        layout.save("c.t", tmp_path / "t.npy")

        assert numpy.load(tmp_path / "t.npy").shape == (6 * 1024, 1024)
        assert set(bytes_of(layout, "c.t")) == {2}


def test_what_has_no_bytes_is_reported(sim: Simulator) -> None:
    nouns = {
        "allocations": {"a": {"size": 4096}},
        "reservations": {"v": {"access": {"gpu.0": "rw"}, "mappings": [{"allocation": "a"}]}},
        "streams": {"s": {}},
    }
    layout = hipplan.apply(plan({}, **nouns), runtime="sim")
    for name in ("a", "v", "s"):
        with pytest.raises(ApplyError, match=f"'{name}' has no bytes of its own"):
            layout.fill(name, 0)
    with pytest.raises(ApplyError, match="the layout has no 'x'"):
        layout.fill("x", 0)
    layout.fill("v[0]", 3)
    assert set(layout.runtime.read(layout["v[0]"].address, 4096)) == {3}
    layout.close()
    with pytest.raises(ValueError, match="closed"):
        layout.fill("v[0]", 0)


def test_moving_bytes_inside_of_moving_bytes_is_refused(sim: Simulator) -> None:
    with hipplan.apply(plan({}, buffers=BUFFERS), runtime="sim") as layout:
        with pytest.raises(RuntimeError, match="being copied already"):
            layout.fill("scratch", 1, on_bytes=lambda done, total: layout.fill("other", 2))
        layout.fill("other", 3)

        assert set(bytes_of(layout, "other")) == {3}


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        ({"value": 300}, "HP105", "'x' cannot be filled: 300 is out of range for u8"),
        ({"value": True}, "HP105", "u8 takes numbers; true and false are for bool"),
        ({"value": 1, "dtype": "nonsense"}, "HP105", "there is no dtype 'nonsense'"),
        ({"path": "f", "part": 1}, "HP107", "part and parts go together"),
        ({"path": "a.npy", "tensor": "x"}, "HP107", "tensor is for a safetensors file, not for a.npy"),
        ({"path": "a.npy", "at": 0}, "HP107", "at is for a file of bytes, not for a.npy"),
        ({"path": "f\0", "at": 0}, "HP105", "'file' cannot be"),
        ({"path": "f", "part": 5, "parts": 2}, "HP105", "there is no part 5 of 2"),
        ({"path": "f", "at": "4kb"}, "HP013", "is not a unit of bytes"),
        ({"path": ""}, "HP105", "file"),
    ],
    ids=str,
)
def test_wrong_arguments_are_reported_as_in_a_plan(given: dict[str, Any], code: str, said: str, sim: Simulator) -> None:
    with hipplan.apply({"hipplan": 1, "buffers": {"x": {"kind": "device", "size": 4096}}}, runtime="sim") as layout:
        with pytest.raises(ApplyError) as caught:
            (layout.fill if "value" in given else layout.load)("x", **given)
        layout.fill("x", 1.5, dtype="torch.bfloat16")

    assert caught.value.diagnostics[0].code == code
    assert said in str(caught.value)


MAPPED: dict[str, Any] = {
    "allocations": {"weights": {"device": "gpu.1", "size": "2MiB"}, "two": {"size": "2MiB", "count": 2}},
    "reservations": {
        "range": {
            "access": {"gpu.0": "rw", "gpu.1": "rw"},
            "mappings": [{"allocation": "weights"}, {"allocation": "two.*"}],
        },
        "again": {"access": {"gpu.0": "rw", "gpu.1": "rw"}, "mappings": [{"allocation": "weights"}]},
    },
}


def test_a_mapping_has_contents_by_its_number(tmp_path: Path, sim: Simulator) -> None:
    raw = RNG.bytes(2 * MIB)
    (tmp_path / "w.bin").write_bytes(raw)
    contents = {
        "range[0]": {"file": str(tmp_path / "w.bin")},
        "range[1]": {"value": 7},
        "range[2]": {"copy_of": "again[0]"},
    }
    with hipplan.apply(plan(contents, **MAPPED), runtime="sim") as layout:
        assert bytes_of(layout, "range[0]") == raw
        assert bytes_of(layout, "range[1]") == b"\7" * (2 * MIB)
        assert bytes_of(layout, "range[2]") == raw


def test_loads_of_one_allocation_by_two_mappings_stay_in_order(tmp_path: Path, sim: Simulator) -> None:
    contents = {}
    for name in ("range[0]", "again[0]", "range[1]"):
        (tmp_path / name).write_bytes(RNG.bytes(2 * MIB))
        contents[name] = {"file": str(tmp_path / name)}
    with hipplan.apply(plan(contents, **MAPPED), runtime="sim") as layout:
        assert [step.name for step in layout.program.contents] == ["range[0]", "again[0] and 1 more"]
        assert bytes_of(layout, "range[0]") == (tmp_path / "again[0]").read_bytes()


@pytest.mark.parametrize(
    ("name", "code", "expected"),
    [
        ("range", "HP213", "name a mapping: range[0]"),
        ("range[3]", "HP213", "did you mean 'range[2]'"),
        ("range[x]", "HP106", "cannot be a name"),
        ("range[0][0]", "HP106", "cannot be a name"),
        ("two.0", "HP213", "no buffer, region, tensor or mapping 'two.0'"),
    ],
)
def test_what_is_no_mapping_has_no_contents(name: str, code: str, expected: str) -> None:
    with pytest.raises(PlanError) as refused:
        hipplan.load(plan({name: {"value": 1}}, **MAPPED))

    assert [diagnostic.code for diagnostic in refused.value.diagnostics] == [code]
    assert expected in str(refused.value)


def rights(of_range: dict[str, str], of_region: dict[str, str]) -> dict[str, Any]:
    return {
        "allocations": {"a": {"size": "2MiB"}},
        "reservations": {"range": {"access": of_range, "mappings": [{"allocation": "a"}]}},
        "regions": {"r": {"size": "2MiB", "access": of_region, "tensors": {"t": {"dtype": "u8", "shape": [64]}}}},
        "buffers": {
            "whole": {"kind": "registered", "file": "data.bin"},
            "fresh": {"kind": "registered", "anonymous": {"size": 4096}},
            "odd": {"kind": "device", "size": 4097},
            "small": {"kind": "device", "size": 64},
        },
    }


NOBODY = rights({"host": "rw"}, {"gpu.0": "none", "gpu.1": "r"})


@pytest.mark.parametrize(
    ("contents", "code", "expected"),
    [
        ({"range[0]": {"value": 1}}, "HP213", "no device may write 'range[0]'"),
        ({"range[0]": {"file": "data.bin"}}, "HP213", "no device may write 'range[0]'"),
        ({"r": {"value": 1}}, "HP213", "no device may write 'r'"),
        ({"r.t": {"copy_of": "small"}}, "HP213", "no device may write 'r.t'"),
        ({"small": {"copy_of": "range[0]"}}, "HP213", "no device may read 'range[0]'"),
        (
            {"odd": {"value": 1.0, "dtype": "float32"}},
            "HP421",
            "'odd' has 4097 bytes, not a multiple of the size of f32",
        ),
        ({"fresh": {"copy_of": "odd"}}, "HP421", "'fresh' has 4KiB, 'odd' has 4097B"),
        ({"whole": {"value": 1}}, "HP213", "the plan does not give the size of 'whole'"),
        ({"small": {"copy_of": "whole"}}, "HP213", "the plan does not give the size of 'whole'"),
    ],
)
def test_errors_of_the_plan_itself_are_reported_without_a_machine(
    contents: dict[str, Any], code: str, expected: str
) -> None:
    with pytest.raises(PlanError) as refused:
        hipplan.load(plan(contents, **NOBODY))

    assert [(diagnostic.code, diagnostic.summary) for diagnostic in refused.value.diagnostics] == [(code, expected)]


def test_padding_is_mentioned_for_a_file_that_is_too_short(tmp_path: Path, sim: Simulator) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(3 * MIB))
    document = plan({"range[0]": {"file": str(tmp_path / "w.bin")}}, **rights({"gpu.0": "rw"}, {"gpu.0": "rw"}))
    document["allocations"]["a"]["size"] = "3MiB"
    del document["buffers"]
    with pytest.raises(ApplyError, match="too short") as refused:
        hipplan.apply(document, runtime="sim", machine="mi300x-8")

    assert refused.value.diagnostics[0].hint.startswith("3145728 are asked for, the rest is padding")


def test_a_tensor_that_safetensors_has_no_name_for_is_not_saved(tmp_path: Path, sim: Simulator) -> None:
    regions = {"r": {"tensors": {"__metadata__": {"dtype": "f32", "shape": [4]}}}}
    with hipplan.apply(plan({}, regions=regions), runtime="sim") as layout:
        with pytest.raises(ApplyError, match=r"HP421.*cannot hold a tensor called '__metadata__'"):
            layout.save("r", tmp_path / "r.safetensors")
        layout.save("r.__metadata__", tmp_path / "r.npy")
    assert [path.name for path in tmp_path.iterdir()] == ["r.npy"]


def test_wrong_rights_are_reported_once() -> None:
    with pytest.raises(PlanError) as refused:
        hipplan.load(plan({"range[0]": {"value": 1}}, **rights({"gpu.7": "rw"}, {"gpu.0": "rw"})))

    assert [diagnostic.code for diagnostic in refused.value.diagnostics] == ["HP201"]


def test_the_nearest_name_is_looked_for_for_the_first_mistakes_alone() -> None:
    contents = {f"scratc{number}": {"value": 1} for number in range(30)}
    with pytest.raises(PlanError) as refused:
        hipplan.load(plan(contents, buffers=BUFFERS))

    hints = [diagnostic.hint for diagnostic in refused.value.diagnostics]
    assert hints == ["did you mean 'scratch'?"] * 20 + ["define it under buffers: or regions:"] * 10


def test_a_mapping_of_many_is_found_without_looking_at_all() -> None:
    looked = 0

    class Counted(Resource):
        def __getattribute__(self, name: str) -> Any:
            nonlocal looked
            looked += name == "offset"
            return super().__getattribute__(name)

    common = {"kind": "mapping", "device": "gpu.0", "size": MIB, "access": (("gpu.0", "rw"),), "inside": "range"}
    backwards = [Counted(name=f"range[{n}]", offset=2 * MIB * (99 - n), **common) for n in range(100)]
    memory = Memory(backwards, {"gpu.0": 3})

    assert [memory.parts(f"range[{n}]", "rw") for n in range(100)] == [
        (MemoryPart("range", 2 * MIB * (99 - n), MIB, 3),) for n in range(100)
    ]
    assert looked < 20 * 100


UNLINKED: dict[str, Any] = {
    "devices": {"gpu": {"count": 2}},
    "regions": {f"own{n}": {"device": f"gpu.{n}", "size": "6MiB", "access": {f"gpu.{n}": "rw"}} for n in range(2)},
    "buffers": {"pinned": {"kind": "pinned", "size": "6MiB"}},
}


def test_each_device_copies_its_own_memory_alone(tmp_path: Path, sim: Simulator) -> None:
    """HIP on AMD has copies made by a device that may have no right to the memory: it faults."""
    with hipplan.apply({"hipplan": 1, **UNLINKED}, runtime="sim") as layout:
        pinned = layout["pinned"].address
        layout.fill("own0", 7)
        layout.copy("own0", "own1")
        sim.runtime.trace_to(str(tmp_path / "trace"))
        layout.copy("own0", "own1")
        layout.copy("own1", "pinned")
        sim.runtime.trace_to("")
        assert bytes(memoryview(layout["pinned"])) == b"\7" * (6 * MIB)
    calls = [json.loads(line) for line in (tmp_path / "trace").read_text().splitlines()]
    assert "hipMemcpyPeerAsync" not in {call["call"] for call in calls}
    moved = [call for call in calls if call["call"] == "hipMemcpyAsync"]
    assert moved
    assert not any(f"{pinned:#x}" in json.dumps(call) for call in moved)


def test_only_the_device_that_holds_memory_may_fill_it_except_on_cuda() -> None:
    source = {
        "hipplan": 1,
        "devices": {"gpu": {"count": 2}},
        "allocations": {"a": {"device": "gpu.0", "size": "2MiB"}},
        "reservations": {"r": {"mappings": [{"allocation": "a", "access": {"gpu.1": "rw"}}]}},
        "contents": {"r[0]": {"value": 7}},
    }
    with pytest.raises(MachineError) as caught:
        hipplan.compile(source, "sim-2")
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == ["HP213"]
    assert "gpu.0 may not write 'r[0]'" in str(caught.value)
    hipplan.compile(source, load_machine("sim-2").model_copy(update={"runtime": "cuda"}))


@pytest.mark.parametrize("content", [{"value": 3}, {"copy_of": "source"}], ids=["value", "copy"])
def test_many_contents_are_written_at_the_same_cost_for_each(content: dict[str, Any], sim: Simulator) -> None:
    """The pinned memory and streams that write them are found once, not once for each."""
    costs = []
    for count in (40, 40, 400):  # the first one also pays for what is imported
        buffers = {name: {"kind": "device", "size": 4096} for name in ("source", *map("b{}".format, range(count)))}
        contents = {name: content for name in buffers if name != "source"}
        plan = hipplan.load({"hipplan": 1, "buffers": buffers, "contents": contents})
        costs.append(sum(calls_of(lambda plan=plan: hipplan.apply(plan, runtime="sim", answer=False).close())))
    assert costs[2] <= 1.2 * 10 * costs[1]
