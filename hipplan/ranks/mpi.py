"""A store over an MPI communicator: rank 0 keeps the values, and sends all ranks the end of each round.

Messages are point to point, on a duplicate of the communicator, and nothing blocks. Rank 0 receives messages in every
call of its store: so it answers during an agreement, but not while its program does other work.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from hipplan.processes.connections import Look, never
from hipplan.ranks.stores import ANSWER_S, READ_MAX, StoreLost, attempts
from hipplan.ranks.words import refused

_END = "/end"
_TAG = 0
"""The communicator is a duplicate, so any tag works."""
_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


def world() -> Any:
    """All ranks of this mpirun. Raises SettingError (HP434)."""
    try:
        mpi = import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:  # RuntimeError: it finds no MPI library
        hint = "install mpi4py and an MPI (such as Debian's openmpi-bin), or use a folder"
        raise refused("the group mpi needs mpi4py", str(error), hint) from None
    size = mpi.COMM_WORLD.Get_size()
    for name in _SIZES:
        if os.environ.get(name, str(size)) != str(size):
            why = f"{name} is {os.environ[name][:40]}, but mpi4py has {size}: it uses another MPI library"
            raise refused(
                "mpi4py and mpirun use different MPI libraries", why, "install mpi4py for the same MPI, or use a folder"
            )
    return mpi.COMM_WORLD


def is_communicator(over: object) -> bool:
    mpi = sys.modules.get("mpi4py.MPI")
    return mpi is not None and isinstance(over, mpi.Comm)


def abort(code: int) -> None:
    """Ends all ranks of this mpirun: MPI_Finalize would wait forever for a rank that does not answer."""
    import_module("mpi4py.MPI").COMM_WORLD.Abort(code)


class MpiStore:
    """Values are sent to rank 0, which keeps them; ends are decided there, and sent to all."""

    def __init__(self, communicator: Any) -> None:
        """Every rank of the communicator makes one. Raises StoreLost: it cannot be used."""
        self._mpi = import_module("mpi4py.MPI")
        self._known: dict[str, bytes] = {}
        self._call = 0
        """The latest call that this rank takes part in."""
        self._queued: list[tuple[bytes, int]] = []
        self._leaving: list[Any] = []
        self._arriving: list[tuple[Any, bytearray]] = []
        with self._lost():
            if communicator == self._mpi.COMM_NULL or communicator.Is_inter():
                raise StoreLost("it has no ranks of its own: give an intracommunicator")
            self.rank, self.size = communicator.Get_rank(), communicator.Get_size()
            self._communicator, self._joining = communicator.Idup()

    def first(self, key: str, value: bytes) -> bytes:
        with self._lost():
            self._begin(_call_of(key))
            if key not in self._known:
                if self.rank == 0 or not key.endswith(_END):
                    self._keep(key, value)
                if self.rank:
                    self._send(key, value, 0)
            self._go_on()
            if key.endswith(_END):
                for _ in attempts(time.monotonic() + ANSWER_S, never):
                    self._go_on()
                    if key in self._known and not self._is_sending:
                        break
                self._check_joined()
            if key not in self._known:
                raise StoreLost(f"rank 0, which keeps the values, has not answered for {ANSWER_S:g} s")
            return self._known[key]

    def get(self, key: str, until: float, look: Look) -> bytes | None:
        if self.rank and not key.endswith(_END):
            raise StoreLost("only rank 0 has the messages of the ranks")
        with self._lost():
            for _ in attempts(until, look):
                self._go_on()
                if key in self._known:
                    return self._known[key]
            self._check_joined()
        return None

    def _check_joined(self) -> None:
        if self._joining is not None:
            raise StoreLost("not all ranks of the communicator have called hipplan.group()")

    def _begin(self, call: int) -> None:
        """Forgets calls before the last: all ranks have read how those ended."""
        if call > self._call:
            self._call = call
            self._known = {key: value for key, value in self._known.items() if _call_of(key) >= call - 1}

    def _keep(self, key: str, value: bytes) -> None:
        if key in self._known or _call_of(key) < self._call - 1:
            return
        self._known[key] = value
        if self.rank == 0 and key.endswith(_END):
            for rank in range(1, self.size):
                self._send(key, value, rank)

    def _send(self, key: str, value: bytes, rank: int) -> None:
        self._queued.append((b"\0".join((key.encode(), value)), rank))

    @property
    def _is_sending(self) -> bool:
        return self.rank == 0 and bool(self._queued or self._leaving)

    def _go_on(self) -> None:
        """Sends and receives what is possible without waiting."""
        if self._joining is not None:
            if not self._joining.Test():
                return
            self._joining = None
            self._communicator.Set_errhandler(self._mpi.ERRORS_RETURN)
        self._receive()
        for message, rank in self._queued:
            self._leaving.append(self._communicator.Isend([message, self._mpi.BYTE], rank, _TAG))
        self._queued.clear()
        self._leaving = [request for request in self._leaving if not request.Test()]

    def _receive(self) -> None:
        status = self._mpi.Status()
        while (message := self._communicator.Improbe(self._mpi.ANY_SOURCE, _TAG, status)) is not None:
            buffer = bytearray(status.Get_count(self._mpi.BYTE))
            if len(buffer) > READ_MAX:
                raise StoreLost(f"rank {status.Get_source()} sent too long a message")
            self._arriving.append((message.Irecv([buffer, self._mpi.BYTE]), buffer))
        arriving, self._arriving = self._arriving, []
        for request, buffer in arriving:
            if request.Test():
                key, _, value = bytes(buffer).partition(b"\0")
                self._keep(key.decode(), value)
            else:
                self._arriving.append((request, buffer))

    @contextlib.contextmanager
    def _lost(self) -> Iterator[None]:
        if self._mpi.Is_finalized():
            raise StoreLost("MPI has been finalized")
        try:
            yield
        except (self._mpi.Exception, ValueError) as error:
            raise StoreLost(f"the communicator cannot be used: {error}") from None


def _call_of(key: str) -> int:
    return int(key.partition("/")[0])
