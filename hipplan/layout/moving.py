"""Bytes into and out of a live layout, by name: fill, load, copy, save, read and write."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, overload

from hipplan import _core
from hipplan.layout import arrays, sleeping
from hipplan.layout.of_rank import InGroup
from hipplan.layout.options import OnBytes
from hipplan.layout.streams import Stream
from hipplan.layout.transfer import Transfer
from hipplan.layout.transfers import Moves
from hipplan.plain import callback
from hipplan.program.lookup import resources_behind
from hipplan.program.memory import Memory
from hipplan.program.program import Program
from hipplan.program.refusals import refuse


class MovesBytes(InGroup):
    """A layout's methods for bytes. With `stream=`, fill, load and copy are asynchronous."""

    @property
    def program(self) -> Program:
        """The layout's program; a change in place replaces it."""
        return self._holding.state.program

    @overload
    def fill(
        self,
        name: str,
        value: float | bool,
        *,
        dtype: str | None = ...,
        on_bytes: OnBytes | None = ...,
        stream: None = ...,
    ) -> None: ...

    @overload
    def fill(self, name: str, value: float | bool, *, dtype: str | None = ..., stream: str | Stream) -> Transfer: ...

    def fill(
        self,
        name: str,
        value: float | bool,
        *,
        dtype: str | None = None,
        on_bytes: OnBytes | None = None,
        stream: str | Stream | None = None,
    ) -> Transfer | None:
        """Sets every element of a buffer, region, tensor or mapping to value, as its dtype, else `dtype`, else u8.

        on_bytes: called every 25 ms with (bytes done, bytes in total); its exception stops the work.
        stream: a stream of the plan, by name or as layout["copy"]: the work is enqueued in it, and a Transfer is
        returned at once, whose wait() raises later errors. Not together with on_bytes.
        Raises ApplyError: no such name (HP420), it does not fit (HP105, HP213, HP421), the stream's device cannot do
        it (HP213), the driver refused (HP401). The layout stays. RuntimeError inside of on_bytes, or of on_step of a
        change.
        """
        with self._moves(name, on_bytes=on_bytes, stream=stream) as moves:
            return moves.fill(name, value, dtype or "")

    @overload
    def load(
        self,
        name: str,
        path: str | os.PathLike[str],
        *,
        at: int | None = ...,
        tensor: str | None = ...,
        part: int | None = ...,
        parts: int | None = ...,
        on_bytes: OnBytes | None = ...,
        stream: None = ...,
    ) -> None: ...

    @overload
    def load(
        self,
        name: str,
        path: str | os.PathLike[str],
        *,
        at: int | None = ...,
        tensor: str | None = ...,
        part: int | None = ...,
        parts: int | None = ...,
        stream: str | Stream,
    ) -> Transfer: ...

    def load(
        self,
        name: str,
        path: str | os.PathLike[str],
        *,
        at: int | None = None,
        tensor: str | None = None,
        part: int | None = None,
        parts: int | None = None,
        on_bytes: OnBytes | None = None,
        stream: str | Stream | None = None,
    ) -> Transfer | None:
        """Fills a buffer, region, tensor or mapping from a file: .npy, .safetensors (or its index), else bytes.

        The arguments are the keys of a plan's contents. stream: as of fill(); host threads read the file, so wait for
        the Transfer before you enqueue work that needs the bytes. Raises as fill() does, and ApplyError, before the
        first byte is moved, for invalid arguments (such as HP107) and a file that cannot be read (HP405), does not fit
        (HP421) or is damaged (HP422).
        """
        keys = {"at": at, "tensor": tensor, "part": part, "parts": parts}
        with self._moves(name, on_bytes=on_bytes, stream=stream) as moves:
            return moves.load(name, os.fspath(path), keys)

    @overload
    def copy(self, source: str, to: str, *, on_bytes: OnBytes | None = ..., stream: None = ...) -> None: ...

    @overload
    def copy(self, source: str, to: str, *, stream: str | Stream) -> Transfer: ...

    def copy(
        self, source: str, to: str, *, on_bytes: OnBytes | None = None, stream: str | Stream | None = None
    ) -> Transfer | None:
        """Copies a buffer, region, tensor or mapping to another. stream: as of fill(). Raises as fill() does."""
        with self._moves(to, source, on_bytes=on_bytes, stream=stream) as moves:
            return moves.copy(to, source)

    def save(self, name: str, path: str | os.PathLike[str], *, on_bytes: OnBytes | None = None) -> None:
        """Writes a buffer, region, tensor or mapping to a file: .npy, .safetensors (a region: all tensors), else bytes.

        An old file of that name is replaced when the new one is complete, never before. Raises as fill() does, and
        ApplyError for a file that cannot be written (HP413), a link, or a file of another user (HP416).
        """
        with self._moves(name, on_bytes=on_bytes) as moves:
            moves.save(name, os.fspath(path))

    def read(self, name: str, *, dtype: object = None) -> Any:
        """A NumPy array with a copy of the bytes of a buffer, region, tensor or mapping, on any device.

        It has the object's dtype and shape; without a dtype it is one-dimensional, of bytes. bf16 and the 8-bit floats
        need the package ml_dtypes. dtype: reads the bytes as that dtype, such as "u16"; the last dimension changes with
        it. Raises as fill() does, ApplyError for an unknown dtype (HP405) and one that does not fit (HP421),
        RuntimeError without NumPy.
        """
        with self._moves(name) as moves:
            return moves.read(name, arrays.numpy_for("read"), dtype)

    def write(self, name: str, array: Any) -> None:
        """Writes a NumPy array, or what NumPy can make one of, into a buffer, region, tensor or mapping.

        It must have a tensor's dtype and shape, or another object's size; nothing is converted. For a dtype that NumPy
        does not have, unsigned integers of the same size are its bits. Raises as read() does.
        """
        with self._moves(name) as moves:
            moves.write(name, arrays.numpy_for("write"), array)

    @contextmanager
    def _moves(
        self, *names: str, on_bytes: OnBytes | None = None, stream: str | Stream | None = None
    ) -> Iterator[Moves]:
        """The moves of one call. Their memory is leased meanwhile, so that it cannot be freed."""
        callback(on_bytes, "on_bytes")
        if stream is not None and on_bytes is not None:
            raise ValueError("on_bytes is for work that is waited for: remove it, or stream")
        self._holding.require_open()
        if self._holding.is_changed_here():  # else this call and the change could wait for each other
            raise RuntimeError("the layout is being changed: bytes cannot be copied during a change")
        with self._holding.turn.taken():
            try:
                with self._holding.lock.taken():  # else a change in another thread may remove the pieces
                    program, pieces = self.program, [self._holding.piece(name) for name in names]
                    queue = None if stream is None else self._stream(stream)
                    moves = Moves(self._holding, [_core.Lease(piece) for piece in pieces], on_bytes, queue)
            except KeyError as unknown:
                raise refuse(str(unknown.args[0])) from None
            except _core.LeaseRefused:
                sleeping.require_awake(self.program, names)
                raise
            try:
                self._holding.turn.names = names
                known = {piece.name: piece.resource for piece in pieces}  # of a registered file also its size
                behind = resources_behind(program, known)
                resources = (known.get(resource.name, resource) for resource in behind)
                holder = self._holding.holder
                moves.memory = Memory(
                    resources, program.devices, program.sealed, program.measured,
                    None if holder is None else holder.why_read_only,
                )  # fmt: skip
                yield moves
            finally:
                self._holding.turn.names = ()
                moves.let_go()  # an exception's traceback would hold the leases

    def _stream(self, given: str | Stream) -> Stream:
        """Raises ApplyError (HP420), TypeError."""
        if isinstance(given, str):
            piece = self._holding.piece(given)
            if isinstance(piece, Stream):
                return piece
            raise refuse(f"'{given}' is no stream", why=f"it is of the kind {piece.kind}")
        if not isinstance(given, Stream):
            wrong = f"stream is the name of a stream of the plan, or layout[name], not {type(given).__name__}"
            raise TypeError(wrong + "; to have PyTorch work in it: torch.cuda.ExternalStream(layout[name].handle)")
        mine = self._holding.piece(given.name)
        if not isinstance(mine, Stream) or mine.handle != given.handle:
            raise refuse(
                f"'{given.name}' is a stream of another layout, or was recreated", hint="take layout[name] again"
            )
        return mine
