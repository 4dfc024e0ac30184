"""Moves bytes into and out of a live layout: fill, load, copy and save, under leases on the memory.

A failure leaves the layout unchanged, but the bytes of the destination undefined.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from hipplan import _core
from hipplan.errors import ApplyError, Diagnostic, PlanError, driver_failure
from hipplan.files import strict_json
from hipplan.files.dtypes import BY_NAME, BYTE
from hipplan.files.tensorfiles import Files
from hipplan.layout import arrays
from hipplan.layout.engine import carry_out
from hipplan.layout.holding import Holding
from hipplan.layout.mover import Callbacks, Mover
from hipplan.layout.options import OnBytes
from hipplan.layout.streams import Stream
from hipplan.layout.transfer import Transfer
from hipplan.layout.verbs import AddLanes
from hipplan.plain import number
from hipplan.program import contents
from hipplan.program.content_steps import Copy, Fill, LoadFiles, MemoryPart, Save, Staging, check_files, staging_of
from hipplan.program.memory import Memory, Refused
from hipplan.program.program import Program
from hipplan.program.queued import Queue, Queued, queued
from hipplan.program.refusals import refuse
from hipplan.program.resources import Resource

if TYPE_CHECKING:
    from hipplan.language.model import Content


class Moves:
    """Moves of bytes in one live layout. leases: one on each object that is moved, until it is moved."""

    memory: Memory
    """The layout's memory; looked up when the leases are held."""

    def __init__(
        self, holding: Holding, leases: list[_core.Lease], on_bytes: OnBytes | None, stream: Stream | None = None
    ) -> None:
        """stream: for fill, copy and load, which then return a Transfer."""
        self._holding = holding
        self._leases = leases
        self._on_bytes = on_bytes
        self._callbacks = Callbacks()
        self._stream = stream

    def let_go(self) -> None:
        """Return the leases, so that others may change the memory again."""
        self._leases.clear()

    def fill(self, name: str, value: float | bool, dtype: str) -> Transfer | None:
        with self._as_apply_errors(name):
            return self._do(contents.fill(self.memory, name, number(value), dtype))

    def copy(self, name: str, source: str) -> Transfer | None:
        with self._as_apply_errors(name):
            return self._do(contents.copy(self.memory, name, source))

    def load(self, name: str, path: str, keys: Mapping[str, Any]) -> Transfer | None:
        """keys: as in the `contents` of a plan."""
        with self._as_apply_errors(name):
            taken = contents.load(self.memory, name, _content(path, keys), path)
            return self._do(contents.together([(name, taken)]))

    def save(self, name: str, path: str) -> None:
        """Save to a new file, which replaces an old one when it is complete."""
        with self._as_apply_errors(name):
            header, members = _laid_out(self.memory, name, path)
            parts = tuple(part for member in members for part in self.memory.parts(member.name, "r"))
            step = Save(name=name, origin=None, file=path, parts=parts, header=header)
            with contextlib.closing(Files()) as files:
                self._with_lanes(staging_of((step,)), files).do(step)

    def read(self, name: str, numpy: Any, dtype: object) -> Any:
        """A new array."""
        with self._as_apply_errors(name):
            parts = self.memory.parts(name, "r")
            array = arrays.empty(numpy, self.memory.by_name[name], dtype)
            self._plainly(name, parts).read(name, parts, array.ctypes.data)
            return array

    def write(self, name: str, numpy: Any, array: Any) -> None:
        with self._as_apply_errors(name):
            parts = self.memory.parts(name, "rw")
            given = arrays.fitting(numpy, self.memory.by_name[name], array)
            self._plainly(name, parts).write(name, parts, given.ctypes.data)

    def _plainly(self, name: str, parts: tuple[MemoryPart, ...]) -> Mover:
        """The mover for ordinary host memory, whose bytes pass through pinned memory as those of files do."""
        return self._with_lanes(staging_of((Save(name=name, origin=None, file="", parts=parts),)), Files())

    def _do(self, step: Fill | Copy | LoadFiles) -> Transfer | None:
        if self._stream is not None:
            return self._begin(step, self._stream)
        with contextlib.closing(Files()) as files:
            check_files([step], files)
            self._with_lanes(staging_of((step,)), files).do(step)
        return None

    def _begin(self, step: Fill | Copy | LoadFiles, stream: Stream) -> Transfer:
        """Start a transfer. It keeps the leases, and the files open."""
        with self._holding.lock.taken():  # otherwise a change in another thread may destroy the stream
            return self._begun(step, stream)

    def _begun(self, step: Fill | Copy | LoadFiles, stream: Stream) -> Transfer:
        here = self._holding.state
        if stream.name not in here or here.stream_of(stream.name) != stream.handle:
            raise refuse(f"stream '{stream.name}' was recreated, or is gone", hint="take layout[name] again")
        ordinal = self.memory.devices[stream.device]
        work = queued(self.memory, step, Queue(stream.name, stream.device, ordinal))
        files = Files()
        try:
            check_files([step], files)
            if work is None:
                mover = self._with_lanes(staging_of((step,)), files)
                native: _core.QueuedWork | _core.Background = mover.begin(step, stream.handle, ordinal)
            else:
                native = self._enqueued(step, work, stream.handle, ordinal)
            transfer = Transfer(step.name, native, self._leases, files.close, _failure)
        except BaseException:
            files.close()
            raise
        self._holding.under_way.add(transfer)
        return transfer

    def _enqueued(self, step: Fill | Copy | LoadFiles, work: Queued, handle: int, ordinal: int) -> _core.QueuedWork:
        mover = Mover(self._holding.state, Files(), None, self._callbacks)
        copies = [(mover.at(to), to.device, mover.at(from_), from_.device, to.size) for to, from_ in work.copies]
        fills = [(mover.at(part), part.size, work.pattern) for part in work.fills]
        return _core.QueuedWork(self._holding.state.runtime, step.name, ordinal, handle, copies, fills)

    def _with_lanes(self, staging: Staging, files: Files) -> Mover:
        """The mover, with lanes for these devices. Missing or too small ones are made, and kept."""
        holding = self._holding
        there = contents.lanes_of(holding.state.program)
        if any(size > there.get(device, 0) for device, size in staging.items()):
            carry_out(holding, AddLanes(staging))
        self._leases += [_core.Lease(holding.piece(contents.staging_name(device))) for device in staging]
        return Mover(holding.state, files, self._on_bytes, self._callbacks)

    @contextlib.contextmanager
    def _as_apply_errors(self, name: str) -> Iterator[None]:
        """Turn errors into ApplyError with a diagnostic, except those raised by on_bytes."""
        try:
            yield
        except Refused as refused:
            raise ApplyError(refused.diagnostic()) from None
        except (_core.HipError, OSError, ValueError) as error:
            if self._is_callers_own(error):
                raise
            raise _failure(name, error) from error

    def _is_callers_own(self, error: BaseException) -> bool:
        return error is self._callbacks.raised


def _content(path: str, keys: Mapping[str, Any]) -> Content:
    """The `contents` entry for these arguments. Raises ApplyError with all errors in it."""
    from pydantic import ValidationError

    from hipplan.language.model import Content
    from hipplan.language.model.translate import translate

    data = {"file": path} | {key: number(given) for key, given in keys.items() if given is not None}
    try:
        return Content.model_validate(data)
    except ValidationError as error:
        raise ApplyError(translate(error, Content, data, lambda *path, key=False: None)) from None


def check_save(program: Program, name: str, path: str) -> None:
    """Raises PlanError (HP213, HP421) if no file of this kind can hold it, or no device may read it."""
    memory = Memory(program.resources, program.devices, machine=program.measured)
    try:
        _, members = _laid_out(memory, name, path)
        for member in members:
            memory.parts(member.name, "r")
    except Refused as refused:
        raise PlanError(refused.diagnostic()) from None


def _failure(name: str, error: Exception) -> ApplyError:
    if not isinstance(error, _core.HipError):
        return ApplyError(Diagnostic("HP405", f"'{name}': {error}"))
    return driver_failure(error, name, "the target's bytes are undefined")


def _laid_out(memory: Memory, name: str, path: str) -> tuple[bytes, Sequence[Resource]]:
    """(header of the file, objects whose bytes follow it)."""
    resource = memory.by_name[name]
    if path.endswith(".npy"):
        if resource.kind == "region":
            raise Refused("HP421", f"'{name}' is a region, but {path} holds one array", hint="save it as .safetensors")
        return _npy_header(resource, path), [resource]
    if path.endswith(".safetensors"):
        members = memory.tensors(name) or [resource]
        return _safetensors_header(members, path), members
    if path.endswith(".index.json"):
        raise Refused("HP421", f"{path} names an index, but only one file is written", hint="save it as .safetensors")
    return b"", [resource]


def _typed(resource: Resource) -> tuple[str, tuple[int, ...]]:
    return (resource.dtype, resource.shape) if resource.dtype else (BYTE.name, (resource.size,))


def _npy_header(resource: Resource, path: str) -> bytes:
    dtype, shape = _typed(resource)
    typestr = BY_NAME[dtype].typestr
    if not typestr:
        raise Refused("HP421", f"NumPy has no {dtype}, so {path} cannot hold it", hint="save it as .safetensors")
    text = f"{{'descr': '{typestr}', 'fortran_order': False, 'shape': {shape!r}, }}"
    padded = text + " " * (-(10 + len(text) + 1) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded.encode()


def _safetensors_header(members: Sequence[Resource], path: str) -> bytes:
    header: dict[str, Any] = {}
    offset = 0
    for member in members:
        dtype, shape = _typed(member)
        if not BY_NAME[dtype].safetensors:
            raise Refused("HP421", f"safetensors has no {dtype}, so {path} cannot hold '{member.name}'")
        short = member.name[len(member.inside) + 1 :] if member.kind == "tensor" else member.name
        if short == "__metadata__":
            why, hint = "safetensors uses that name for metadata", "rename it, or save it alone as .npy"
            raise Refused("HP421", f"{path} cannot hold a tensor called '{short}'", why=why, hint=hint)
        size = prod(shape) * BY_NAME[dtype].size
        header[short] = {
            "dtype": BY_NAME[dtype].safetensors,
            "shape": list(shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    text = strict_json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
