"""Headers of files from strangers: what NumPy and the safetensors library write is read, all else is a diagnostic."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hipplan.files import tensorfiles
from hipplan.files.dtypes import DTYPES
from hipplan.files.tensorfiles import ArrayInFile, FileProblem, Files, WantedBytes, open_file


def entries_of(path: Path) -> dict[str, ArrayInFile]:
    file = open_file(str(path))
    os.close(file.descriptor)
    return dict(file.entries)


def refused(path: Path) -> FileProblem:
    with pytest.raises(FileProblem) as caught:
        entries_of(path)
    return caught.value


def safetensors_of(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(**more: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24], **more}


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype.typestr], ids=str)
def test_what_numpy_saves(dtype: Any, tmp_path: Path) -> None:
    array = numpy.arange(6).reshape(2, 3).astype(dtype.typestr)
    numpy.save(tmp_path / "a.npy", array)
    (entry,) = entries_of(tmp_path / "a.npy").values()

    assert (entry.dtype, entry.shape, entry.size) == (dtype.name, (2, 3), array.nbytes)
    assert (tmp_path / "a.npy").read_bytes()[entry.offset :] == array.tobytes()


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_each_version_of_npy(version: tuple[int, int], tmp_path: Path) -> None:
    with (tmp_path / "a.npy").open("wb") as file:
        numpy.lib.format.write_array(file, numpy.zeros((2, 2), "<f4"), version)

    assert entries_of(tmp_path / "a.npy")[""].shape == (2, 2)


def test_what_the_safetensors_library_saves(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy")
    arrays = {"b": numpy.arange(6, dtype="<f4").reshape(2, 3), "a.x": numpy.ones(5, "<i8"), "s": numpy.float16(3)[None]}
    library.save_file(arrays, tmp_path / "m.safetensors", metadata={"format": "pt"})
    result = entries_of(tmp_path / "m.safetensors")
    data = (tmp_path / "m.safetensors").read_bytes()

    assert result.keys() == arrays.keys()
    for name, array in arrays.items():
        entry = result[name]
        assert (entry.dtype, entry.shape) == (DTYPE_OF[array.dtype.str], array.shape)
        assert data[entry.offset : entry.offset + entry.size] == array.tobytes()


DTYPE_OF = {dtype.typestr: dtype.name for dtype in DTYPES}
HOSTILE = {
    "empty": b"",
    "seven bytes": b"1234567",
    "a length past the end": safetensors_of({}, length=1000),
    "a length past everything": safetensors_of({}, length=2**64 - 1),
    "no JSON": safetensors_of(b"{"),
    "no UTF-8": safetensors_of(b'{"\xff": 1}'),
    "a list": safetensors_of([]),
    "deep": safetensors_of(b"[" * 100_000),
    "a long number": safetensors_of(
        b'{"a": {"dtype": "F32", "data_offsets": [0, 4], "shape": [' + b"9" * 5000 + b"]}}"
    ),
    "a name twice": safetensors_of(b'{"a": {}, "a": {}}'),
    "no object": safetensors_of({"a": 1}),
    "no dtype": safetensors_of({"a": {"shape": [1], "data_offsets": [0, 4]}}, b"1234"),
    "a shape of text": safetensors_of({"a": entry(shape=["2"])}, bytes(24)),
    "a negative shape": safetensors_of({"a": entry(shape=[-2, -3])}, bytes(24)),
    "true as a size": safetensors_of({"a": entry(shape=[True])}, bytes(24)),
    "a fraction": safetensors_of({"a": entry(data_offsets=[0, 24.0])}, bytes(24)),
    "offsets backwards": safetensors_of({"a": entry(data_offsets=[24, 0])}, bytes(24)),
    "other bytes than the shape": safetensors_of({"a": entry(shape=[2, 4])}, bytes(24)),
    "a shape that wraps around": safetensors_of({"a": entry(shape=[2**62, 4])}, bytes(24)),
    "a hole": safetensors_of({"a": entry(data_offsets=[8, 32])}, bytes(32)),
    "overlapping": safetensors_of({"a": entry(), "b": entry(data_offsets=[8, 32])}, bytes(32)),
    "bytes left over": safetensors_of({"a": entry()}, bytes(25)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_headers_are_refused_here_and_by_the_library(name: str, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(HOSTILE[name])

    assert refused(path).code == "HP422"
    library = pytest.importorskip("safetensors")
    with pytest.raises(library.SafetensorError):
        library.safe_open(path, "numpy").keys()


def test_a_file_that_was_cut_off(tmp_path: Path) -> None:
    (tmp_path / "m.safetensors").write_bytes(safetensors_of({"a": entry()}, bytes(23)))
    numpy.save(tmp_path / "a.npy", numpy.zeros(8))
    whole = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(whole[:-1])

    assert refused(tmp_path / "m.safetensors").code == "HP421"
    assert refused(tmp_path / "a.npy").code == "HP421"


@given(st.binary(max_size=200))
@settings(max_examples=300)
def test_noise_is_no_file_of_tensors(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.getbasetemp()
    for name, start in (("n.safetensors", b""), ("n.npy", b"\x93NUMPY\x01\x00")):
        (folder / name).write_bytes(start + data)
        try:
            entries_of(folder / name)
        except FileProblem as problem:
            assert problem.code in ("HP421", "HP422")


@pytest.mark.parametrize(
    "descr",
    ["{'descr': '<f4'}", "__import__('os').abort()", "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", "(" * 5000,
     "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
     "{'descr': ['<f4'], 'fortran_order': False, 'shape': ()}"],
)  # fmt: skip
def test_hostile_npy_headers(descr: str, tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(descr).to_bytes(2, "little") + descr.encode())

    assert refused(path).code == "HP422"


@pytest.mark.parametrize(
    "array", [numpy.zeros((2, 3), ">f4"), numpy.zeros((2, 3), "<f4", order="F"), numpy.array(["a"])]
)
def test_arrays_that_no_tensor_is_like(array: Any, tmp_path: Path) -> None:
    numpy.save(tmp_path / "a.npy", array)

    assert refused(tmp_path / "a.npy").code == "HP421"


def test_what_is_no_regular_file_is_reported_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.bin")
    (tmp_path / "folder.bin").mkdir()

    assert {refused(tmp_path / name).code for name in ("pipe.bin", "folder.bin", "none.bin")} == {"HP405"}


def test_an_index_names_files_of_its_own_folder_only(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors.index.json"
    for name in ("../m.safetensors", "/etc/passwd", "sub/m.safetensors", "m.bin", 5):
        path.write_text(json.dumps({"weight_map": {"a": name}}))
        with pytest.raises(FileProblem, match="damaged"):
            Files().rows(WantedBytes(name="a", size=24, file=str(path), tensor="a"))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": {}}', '{"weight_map": []}', "[" * 100_000])
def test_what_is_no_index(text: str, tmp_path: Path) -> None:
    path = tmp_path / "m.index.json"
    path.write_text(text)
    with pytest.raises(FileProblem, match="damaged"):
        list(Files().entries(str(path)))


def test_as_many_tensors_as_the_limit_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorfiles, "TENSORS_MAX", 2)
    index, file = tmp_path / "m.safetensors.index.json", tmp_path / "m.safetensors"
    for count in (2, 3):
        names = [f"t{n}" for n in range(count)]
        index.write_text(json.dumps({"weight_map": dict.fromkeys(names, "m.safetensors")}))
        header = {name: entry(data_offsets=[24 * n, 24 * n + 24]) for n, name in enumerate(names)}
        file.write_bytes(safetensors_of(header, bytes(24 * count)))
        if count == 2:
            assert [*tensorfiles.read_index(str(index))] == [*entries_of(file)] == names
    with pytest.raises(FileProblem) as caught:
        tensorfiles.read_index(str(index))

    assert caught.value.why == "it names more than 2 tensors"
    assert refused(file).why == "it has more than 2 tensors"


def rows(path: Path, **more: Any) -> tuple[int, int, int]:
    files = Files()
    try:
        result = files.rows(WantedBytes(name="x", file=str(path), **more))
        return result.offset, result.row, result.stride
    finally:
        files.close()


def test_parts_are_cut_from_the_one_dimension_that_is_larger(tmp_path: Path) -> None:
    tensors = {"a": entry(shape=[4, 6], data_offsets=[0, 96])}
    (tmp_path / "m.safetensors").write_bytes(safetensors_of(tensors, bytes(96)))
    path, begin = tmp_path / "m.safetensors", len((tmp_path / "m.safetensors").read_bytes()) - 96

    assert rows(path, size=48, dtype="f32", shape=(2, 6), part=1, parts=2) == (begin + 48, 48, 96)
    assert rows(path, size=32, dtype="f32", shape=(4, 2), part=2, parts=3) == (begin + 16, 8, 24)
    assert rows(path, size=96, dtype="f32", shape=(4, 6), part=1, parts=2) == (begin, 96, 96)


@pytest.mark.parametrize(
    ("more", "summary", "hint"),
    [
        ({"dtype": "f32", "shape": (2, 6), "size": 48}, "has the shape", "add parts: 2 and part: 0 to 1"),
        ({"dtype": "f32", "shape": (4, 5), "size": 80}, "has the shape", ""),
        ({"dtype": "f32", "shape": (2, 3), "size": 24, "parts": 2}, "has the shape", ""),
        ({"dtype": "f32", "shape": (24,), "size": 96}, "has the shape", ""),
        ({"dtype": "f16", "shape": (4, 6), "size": 48}, "is f32", "dtypes are never converted"),
        ({"size": 95}, "has 96 bytes", ""),
        ({"size": 96, "tensor": "b"}, "has no tensor 'b'", "it has a: choose one with tensor:"),
    ],
)
def test_what_does_not_fit(more: dict[str, Any], summary: str, hint: str, tmp_path: Path) -> None:
    tensors = {"a": entry(shape=[4, 6], data_offsets=[0, 96])}
    (tmp_path / "m.safetensors").write_bytes(safetensors_of(tensors, bytes(96)))
    with pytest.raises(FileProblem, match=summary) as caught:
        rows(tmp_path / "m.safetensors", **more)
    assert caught.value.code == "HP421"
    assert hint in caught.value.hint and bool(hint) == bool(caught.value.hint)


@pytest.mark.parametrize(
    ("size", "at", "good"),
    [(8, None, True), (7, None, False), (9, None, False), (7, 0, True), (4, 4, True), (5, 4, False), (1, 9, False)],
)
def test_bytes_are_as_many_as_are_wanted_or_begin_where_it_is_reported(
    size: int, at: int | None, good: bool, tmp_path: Path
) -> None:
    (tmp_path / "raw.bin").write_bytes(bytes(8))
    if good:
        assert rows(tmp_path / "raw.bin", size=size, at=at) == (at or 0, size, size)
    else:
        with pytest.raises(FileProblem, match=r"too (short|long)"):
            rows(tmp_path / "raw.bin", size=size, at=at)


def test_a_missing_file_is_reported_with_its_path() -> None:
    with pytest.raises(FileProblem, match=r"none\.bin cannot be read") as caught:
        rows(Path("none.bin"), size=1)
    assert caught.value.hint == f"its absolute path is {Path.cwd() / 'none.bin'}"


def test_the_nearest_tensor_is_looked_for_for_the_first_mistakes_alone(tmp_path: Path) -> None:
    header = {"weight": entry(), "bias": entry(data_offsets=[24, 48])}
    (tmp_path / "a.safetensors").write_bytes(safetensors_of(header, bytes(48)))
    files, hints = Files(), []
    for number in range(30):
        with pytest.raises(FileProblem) as caught:
            files.rows(WantedBytes(name="t", size=24, file=str(tmp_path / "a.safetensors"), tensor=f"weigh{number}"))
        hints.append(caught.value.hint)
    files.close()

    assert hints == ["did you mean 'weight'?"] * 20 + ["it has weight, bias: choose one with tensor:"] * 10


@pytest.mark.parametrize("name", ["a.npy", "a.safetensors", "a.safetensors.index.json"])
def test_an_empty_file_is_called_empty(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(FileProblem, match="damaged") as caught:
        rows(tmp_path / name, size=1, tensor="a")
    assert (caught.value.code, caught.value.why) == ("HP422", "it is empty")
