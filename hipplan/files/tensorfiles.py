"""Files of bytes and tensors: what is in them and where, by their headers alone.

Four kinds, known by the end of the name: `.npy` (NumPy, one array), `.safetensors` (named tensors),
`.safetensors.index.json` (a checkpoint of several of those), anything else is bytes. Headers come from strangers:
each is read with bounds, and what is wrong with it is a FileProblem, never a crash or an endless read. The
safetensors library itself gives no offsets, only tensors; tests compare this reader with it.
"""

from __future__ import annotations

import ast
import contextlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any

from hipplan.errors import Problem, Suggestions, reason_of
from hipplan.files import strict_json
from hipplan.files.dtypes import BY_NAME, by_typestr
from hipplan.files.working_folder import Folder
from hipplan.plain import shown
from hipplan.units import format_size

HEADER_MAX = 100_000_000
"""Bytes of a header; the limit of the safetensors library."""
TENSORS_MAX = 250_000


class FileProblem(Problem):
    """A file that cannot be used. HP405: it is not there or not readable; HP422: it is not what its name says; HP421:
    it does not fit."""


@dataclass(frozen=True, slots=True)
class ArrayInFile:
    """One array in a file."""

    name: str
    dtype: str
    """hipplan's name; empty: untyped bytes; what the file says where hipplan knows no such type."""
    shape: tuple[int, ...]
    offset: int
    """Bytes from the start of the file."""
    size: int


@dataclass(frozen=True, slots=True)
class TensorFile:
    """An open file and what is in it. The opener closes the descriptor."""

    path: str
    descriptor: int
    size: int
    entries: Mapping[str, ArrayInFile]
    """By name; an array without a name, and bytes, are ''."""


def is_safetensors(path: str) -> bool:
    return path.endswith((".safetensors", ".index.json"))


def open_file(path: str, descriptor: int | None = None) -> TensorFile:
    """Opens one file, an index excepted, and reads its header. descriptor: of the file, if it is open; it is the
    caller's. Raises FileProblem, OSError."""
    descriptor = _opened(path) if descriptor is None else os.dup(descriptor)
    try:
        size = os.fstat(descriptor).st_size
        return TensorFile(path, descriptor, size, _entries(path, descriptor, size))
    except BaseException:
        os.close(descriptor)
        raise


def _opened(path: str) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would wait for a writer
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise FileProblem("HP405", f"{path} is not a regular file")


def read_index(path: str) -> dict[str, str]:
    """Tensor -> path of the file it is in, of a model.safetensors.index.json. Raises FileProblem."""
    descriptor = _opened(path)
    try:
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(HEADER_MAX + 1)
    except OSError as error:
        raise _unreadable(path, error) from None
    if len(data) > HEADER_MAX:
        raise _malformed(path, f"it is larger than {format_size(HEADER_MAX)}")
    if not data:
        raise _malformed(path, "it is empty")
    index = _json(path, data)
    files = index.get("weight_map")
    if not isinstance(files, dict) or not files:
        raise _malformed(path, "it has no weight_map from tensors to files")
    if len(files) > TENSORS_MAX:
        raise _malformed(path, f"it names more than {TENSORS_MAX} tensors")
    for name, file in files.items():
        if not isinstance(file, str) or "/" in file or "\0" in file or not file.endswith(".safetensors"):
            raise _malformed(path, f"'{name[:60]}' is not in a .safetensors file of the same folder")
    folder = Path(path).parent
    return {name: str(folder / file) for name, file in files.items()}


def _entries(path: str, descriptor: int, size: int) -> Mapping[str, ArrayInFile]:
    if size == 0 and (path.endswith(".npy") or is_safetensors(path)):
        raise _malformed(path, "it is empty")
    if path.endswith(".npy"):
        return {"": _npy(path, descriptor, size)}
    if path.endswith(".safetensors"):
        return _safetensors(path, descriptor, size)
    return {"": ArrayInFile("", "", (size,), 0, size)}


def _read(path: str, descriptor: int, offset: int, size: int) -> bytes:
    parts = []
    while size > 0:
        try:
            part = os.pread(descriptor, size, offset)
        except OSError as error:
            raise _unreadable(path, error) from None
        if not part:
            raise _malformed(path, "it ends within its header")
        parts.append(part)
        offset += len(part)
        size -= len(part)
    return b"".join(parts)


def _unreadable(path: str, error: OSError | ValueError) -> FileProblem:
    missing = isinstance(error, FileNotFoundError) and not Path(path).is_absolute()
    hint = f"its absolute path is {Path(path).absolute()}" if missing else ""
    return FileProblem("HP405", f"{path} cannot be read", why=reason_of(error), hint=hint)


def _malformed(path: str, why: str) -> FileProblem:
    return FileProblem("HP422", f"{path} is damaged or has the wrong extension", why=why)


def _json(path: str, data: bytes) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            raise ValueError("a name appears twice")
        return made

    try:
        made = strict_json.loads(data.decode(), object_pairs_hook=once)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise _malformed(path, f"its JSON cannot be read: {str(error)[:120]}") from None
    if not isinstance(made, dict):
        raise _malformed(path, "its JSON is not an object")
    return made


# safetensors: 8 bytes of length, that much JSON, then the data, without holes


def _safetensors(path: str, descriptor: int, size: int) -> Mapping[str, ArrayInFile]:
    if size < 8:
        raise _malformed(path, f"it has {size} bytes, fewer than a header")
    length = int.from_bytes(_read(path, descriptor, 0, 8), "little")
    if length > min(HEADER_MAX, size - 8):
        raise _malformed(path, f"its header claims {length} bytes, the file has {size}")
    header = _json(path, _read(path, descriptor, 8, length))
    header.pop("__metadata__", None)
    if len(header) > TENSORS_MAX:
        raise _malformed(path, f"it has more than {TENSORS_MAX} tensors")
    entries = {name: _tensor(path, name, entry, 8 + length) for name, entry in header.items()}
    end = 8 + length
    for entry in sorted(entries.values(), key=lambda tensor: (tensor.offset, tensor.size)):
        if entry.offset != end:
            raise _malformed(path, f"'{entry.name[:60]}' does not start where the previous tensor ends")
        end += entry.size
    if end > size:
        raise FileProblem("HP421", f"{path} is too short", why=f"its tensors need {end} bytes, the file has {size}")
    if end < size:
        raise _malformed(path, f"its tensors end after {end} bytes, the file has {size}")
    return entries


def _tensor(path: str, name: str, entry: Any, data: int) -> ArrayInFile:
    shown = f"'{name[:60]}'"
    if not isinstance(entry, dict):
        raise _malformed(path, f"{shown} is not described by an object")
    dtype: Any = entry.get("dtype")
    shape: Any = entry.get("shape")
    place: Any = entry.get("data_offsets")
    if not isinstance(dtype, str) or not _whole(shape) or not _whole(place) or len(place) != 2:
        raise _malformed(path, f"{shown} has no valid dtype, shape and data_offsets")
    begin, end = place
    if not begin <= end < 2**63:
        raise _malformed(path, f"{shown} ends before it starts")
    known = BY_NAME.get(dtype)
    if known and prod(shape) * known.size != end - begin:
        raise _malformed(path, f"{shown} has {end - begin} bytes, its dtype and shape need {prod(shape) * known.size}")
    return ArrayInFile(name, known.name if known else dtype[:40], tuple(shape), data + begin, end - begin)


def _whole(numbers: Any) -> bool:
    few = isinstance(numbers, list) and len(numbers) <= 64  # the product of hundreds is too long to print
    return few and all(type(n) is int and 0 <= n < 2**63 for n in numbers)


# .npy: magic, version, length, a Python literal, the data


def _npy(path: str, descriptor: int, size: int) -> ArrayInFile:
    start = _read(path, descriptor, 0, min(size, 12))
    if len(start) < 12 or start[:6] != b"\x93NUMPY" or start[6] not in (1, 2, 3):
        raise _malformed(path, "it does not start like a .npy file")
    begin = 10 if start[6] == 1 else 12
    length = int.from_bytes(start[8:begin], "little")
    if length > min(65536, size - begin):
        raise _malformed(path, f"its header claims {length} bytes, the file has {size}")
    try:
        header = ast.literal_eval(_read(path, descriptor, begin, length).decode("latin1").strip())
        descr, fortran, shape = (header[key] for key in ("descr", "fortran_order", "shape"))
        good = isinstance(descr, str) and type(fortran) is bool and isinstance(shape, tuple) and _whole(list(shape))
    except (ValueError, SyntaxError, TypeError, KeyError, MemoryError, RecursionError):
        good = False
    if not good:
        raise _malformed(path, "its header cannot be read")
    dtype = by_typestr(descr)
    if dtype is None:
        raise FileProblem("HP421", f"{path} holds elements of '{descr[:40]}'", why="tensors cannot have that dtype")
    if fortran and len(shape) > 1:
        hint = "save it with numpy.ascontiguousarray"
        raise FileProblem("HP421", f"{path} is in Fortran order", why="tensors are in C order", hint=hint)
    needs, there = prod(shape) * dtype.size, size - begin - length
    if there != needs:
        short = FileProblem("HP421", f"{path} is too short", why=f"its array needs {needs} bytes, the file has {there}")
        raise short if there < needs else _malformed(path, f"its array needs {needs} bytes, the file has {there}")
    return ArrayInFile("", dtype.name, shape, begin + length, needs)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedBytes:
    """What a place in memory takes from a file."""

    name: str
    """The plan's name for the place."""
    size: int
    asked: int = 0
    """Bytes of the size that are no padding."""
    dtype: str = ""
    """Empty: any, as long as the bytes fit."""
    shape: tuple[int, ...] = ()
    file: str
    at: int | None = None
    """Where to begin in a file of bytes."""
    tensor: str = ""
    """The tensor of a safetensors file. Empty: its only one."""
    part: int = 0
    parts: int = 1
    """The file's tensor is this many times as large in one dimension; take the part of this number. One that
    has the very shape is taken whole."""


@dataclass(frozen=True, slots=True)
class FileRows:
    """Where the bytes of a place lie in a file: rows whose beginnings are `stride` apart."""

    descriptor: int
    offset: int
    row: int
    stride: int


class Files:
    """Open files by path, each once; closed with close()."""

    def __init__(self, descriptors: Mapping[str, int] | None = None, folder: Folder | None = None) -> None:
        """descriptors: of files that are open already, by path; they are the caller's. folder: in which paths begin."""
        self._descriptors = descriptors or {}
        self._there: Callable[[str], str] = str if folder is None else folder.path_from_here
        self._open: dict[str, TensorFile] = {}
        self._indices: dict[str, dict[str, str]] = {}
        self._suggestions = Suggestions()

    def rows(self, wanted: WantedBytes) -> FileRows:
        """Where the bytes are. Raises FileProblem if they do not fit: shape, dtype or length."""
        try:
            file, entry = self._entry(wanted)
        except OSError as error:
            raise _unreadable(wanted.file, error) from None
        offset, row, stride = _fit(wanted, entry, file.path)
        return FileRows(file.descriptor, offset, row, stride)

    def close(self) -> None:
        while self._open:
            with contextlib.suppress(OSError):  # nothing was written there
                os.close(self._open.popitem()[1].descriptor)

    def entries(self, path: str) -> Iterator[tuple[TensorFile, ArrayInFile]]:
        """Every tensor of a safetensors file or index, in the order of the headers. Raises FileProblem."""
        if not path.endswith(".index.json"):
            file = self._file(path)
            yield from ((file, entry) for entry in file.entries.values())
            return
        index = read_index(self._there(path))
        for part in dict.fromkeys(index.values()):
            file = self._file(part)
            for name, entry in file.entries.items():
                if index.get(name) == part:
                    yield file, entry
        for name, part in index.items():
            if name not in self._file(part).entries:
                raise _malformed(path, f"'{name[:60]}' is not in {Path(part).name}")

    def _file(self, path: str) -> TensorFile:
        if path not in self._open:
            self._open[path] = open_file(self._there(path), self._descriptors.get(path))
        return self._open[path]

    def _entry(self, wanted: WantedBytes) -> tuple[TensorFile, ArrayInFile]:
        path, name = wanted.file, wanted.tensor
        if path.endswith(".index.json"):
            if path not in self._indices:
                self._indices[path] = read_index(self._there(path))
            index = self._indices[path]
            if name not in index:
                raise self._no_tensor(path, name, index)
            path = index[name]
        file = self._file(path)
        if not is_safetensors(path):
            return file, file.entries[""]
        if not name and len(file.entries) == 1:
            return file, next(iter(file.entries.values()))
        if name not in file.entries:
            raise self._no_tensor(path, name, file.entries)
        return file, file.entries[name]

    def _no_tensor(self, path: str, name: str, known: Mapping[str, object]) -> FileProblem:
        if not name:
            return FileProblem("HP421", f"{path} has {len(known)} tensors", hint="choose one with tensor:")
        few = ", ".join([*map(shown, islice(known, 3)), *["..."] * (len(known) > 3)]) or "none"
        hint = self._suggestions.nearest(name, known) or f"it has {few}: choose one with tensor:"
        return FileProblem("HP421", f"{path} has no tensor '{name}'", hint=hint)


def _fit(wanted: WantedBytes, entry: ArrayInFile, path: str) -> tuple[int, int, int]:
    """(offset, bytes of a row, bytes from row to row) of the wanted part of an entry."""
    of = f"'{entry.name}' of {path}" if entry.name else path
    if not entry.dtype:
        return _fit_bytes(wanted, entry, of)
    if wanted.dtype and wanted.dtype != entry.dtype:
        why = f"'{wanted.name}' is {wanted.dtype}"
        raise FileProblem("HP421", f"{of} is {entry.dtype}", why=why, hint="dtypes are never converted")
    if not wanted.dtype:
        if wanted.size != entry.size or wanted.parts > 1:
            raise FileProblem("HP421", f"{of} has {entry.size} bytes, '{wanted.name}' {wanted.size}")
        return entry.offset, entry.size, entry.size
    if entry.shape == wanted.shape:
        return entry.offset, entry.size, entry.size
    dimension, parts = _split(entry.shape, wanted.shape)
    if wanted.parts == 1 or parts != wanted.parts:
        why, hint = f"'{wanted.name}' has the shape {list(wanted.shape)}", ""
        if wanted.parts > 1:
            why += f", or that {wanted.parts} times in one dimension"
        elif parts > 1:
            hint = f"to load one of {parts} parts, add parts: {parts} and part: 0 to {parts - 1}"
        raise FileProblem("HP421", f"{of} has the shape {list(entry.shape)}", why=why, hint=hint)
    item = entry.size // prod(entry.shape)
    row = prod(wanted.shape[dimension:]) * item
    return entry.offset + wanted.part * row, row, row * parts


def _split(there: Sequence[int], wanted: Sequence[int]) -> tuple[int, int]:
    """(dimension, parts) of a tensor that is so many times as large in one dimension; 0 parts for other shapes."""
    differ = [n for n, (a, b) in enumerate(zip(there, wanted, strict=False)) if a != b]
    if len(there) != len(wanted) or len(differ) != 1:
        return 0, 0
    large, small = there[differ[0]], wanted[differ[0]]
    return differ[0], large // small if small and large % small == 0 else 0


def _fit_bytes(wanted: WantedBytes, entry: ArrayInFile, of: str) -> tuple[int, int, int]:
    begin = wanted.at or 0
    if wanted.at is None and entry.size > wanted.size:
        why = f"it has {entry.size} bytes, '{wanted.name}' {wanted.size}"
        raise FileProblem("HP421", f"{of} is too long", why=why, hint="add at: 0 to read its beginning")
    if entry.size < begin + wanted.size:
        after = f" after the first {begin}" if begin else ""
        why = f"it has {max(0, entry.size - begin)} bytes{after}, '{wanted.name}' {wanted.size}"
        hint = f"{wanted.asked} are asked for, the rest is padding, which a tensor of a region has not"
        is_padded = 0 < wanted.asked <= entry.size - begin
        raise FileProblem("HP421", f"{of} is too short", why=why, hint=hint if is_padded else "")
    return begin, wanted.size, wanted.size
