"""Fails each call about a file in all that writes or reads one; run in a process with failing_files.c preloaded.

Prints how many calls failed in each act, and what went wrong, as JSON. Arguments: a folder.
"""

from __future__ import annotations

import ctypes
import errno
import json
import logging
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import hipplan
from hipplan.errors import HipplanError, RecordError
from hipplan.files.output import write_document
from hipplan.layout.layout import Layout
from hipplan.layout.options import Options
from hipplan.layout.record import Recorder
from hipplan.layout.run import run
from hipplan.machines.profiles import load_machine
from hipplan.processes.connections import never
from hipplan.ranks.stores import FolderStore, StoreLost
from tests.conftest import WHOLE, Simulator
from tests.descriptors import descriptors

MIB = 2**20
SIMULATED = "hipsim"
"""Memory of the simulator."""
PLAN: dict[str, Any] = {
    "hipplan": 1,
    "regions": {name: {"size": "2MiB", "chunk": "2MiB"} for name in ("weights", "cache")},
}
BYTES = {"weights": 7, "cache": 5}
HALF = 0
"""Not an error: a call moves fewer bytes than it should."""
CODES = ((errno.ENOSPC,), (errno.EIO,), (HALF,)) if WHOLE else ((errno.ENOSPC, HALF),)
"""Each act is repeated with each of these; calls take the codes of one in turns."""

libc = ctypes.CDLL(os.environ["LD_PRELOAD"])
libc.fail_file.restype = ctypes.c_char_p
libc.fail_file.argtypes = [ctypes.c_long, ctypes.c_int]
sim = Simulator()
folder = Path(sys.argv[1])
file = folder / "file.bin"
warned: list[str] = []
"""What was logged: only of a file that could not be removed."""


class Act(ABC):
    """Something that writes or reads files."""

    may_raise: ClassVar[type[Exception]] = HipplanError

    @abstractmethod
    def begin(self) -> None:
        """Makes what the act starts from; nothing fails."""

    @abstractmethod
    def act(self) -> None:
        """What calls fail in."""

    def held(self) -> int:
        """How many files are held open."""
        return 0

    @abstractmethod
    def wrong(self, failed: bool) -> Iterator[str]:
        """What is not as it should be, when calls work again. failed: the act raised an error."""

    def end(self) -> None:  # noqa: B027
        """Frees what is left."""


class OfLayout(Act):
    """An act on a live layout."""

    program = hipplan.compile(hipplan.load(PLAN), load_machine("sim-2"))
    layout: Layout

    def begin(self) -> None:
        self.layout = run(self.program, sim.runtime)
        for name, value in BYTES.items():
            self.layout.fill(name, value)
        self.prepare(self.layout)
        self.before = self.layout.program, self.names(), sim.alive()

    def prepare(self, layout: Layout) -> None:
        """What comes before."""

    def held(self) -> int:
        return len(self.layout._holding.state.copies.files)

    def names(self) -> set[str]:
        return {path.name for path in folder.iterdir()}

    def wrong(self, failed: bool) -> Iterator[str]:
        layout = self.layout
        if failed:
            now = layout.program, self.names(), sim.alive()
            yield from (f"{was} -> {is_} " for was, is_ in zip(self.before, now, strict=True) if was != is_)
        expected = {Path(backup.place).name for backup in layout.program.backups.values() if backup.to == "file"}
        if self.names() != expected and not warned:
            yield f"{self.names()} is there, not {expected}"
        layout.wake()
        for name, value in BYTES.items():
            piece = layout[name]
            if sim.read(piece.address, piece.nbytes) != bytes([value]) * piece.nbytes:
                yield f"the bytes of {name} are lost"
        if layout.drift():
            yield "drift"

    def end(self) -> None:
        self.layout.close()


class Sleep(OfLayout):
    def act(self) -> None:
        self.layout.sleep([*BYTES], to=file)


class SleepAgain(OfLayout):
    """In the file that was kept."""

    def prepare(self, layout: Layout) -> None:
        layout.sleep([*BYTES], to=file)
        layout.wake(retain=True)

    def act(self) -> None:
        self.layout.sleep([*BYTES], to=file, unchanged=[*BYTES])


class SleepElsewhere(SleepAgain):
    def act(self) -> None:
        self.layout.sleep([*BYTES], to=folder / "other.bin")


class Wake(OfLayout):
    def prepare(self, layout: Layout) -> None:
        layout.sleep([*BYTES], to=file)

    def act(self) -> None:
        self.layout.wake()


class WakeOne(Wake):
    def act(self) -> None:
        self.layout.wake("weights", retain=True)


class Saves(OfLayout):
    """layout.save(), over an older file."""

    def prepare(self, layout: Layout) -> None:
        file.write_bytes(b"old")

    def act(self) -> None:
        self.layout.save("weights", file)

    def wrong(self, failed: bool) -> Iterator[str]:
        written = file.read_bytes()
        if written != (b"old" if failed else b"\7" * 2 * MIB):
            yield f"{len(written)} bytes are in the file"
        file.unlink()
        self.before = self.before[0], set(), self.before[2]
        yield from super().wrong(failed=False)


class Document(Act):
    def begin(self) -> None:
        file.write_text("old")

    def act(self) -> None:
        write_document(str(file), "new" * 1000, "the lock")

    def wrong(self, failed: bool) -> Iterator[str]:
        if file.read_text() != ("old" if failed else "new" * 1000):
            yield "it is neither old nor new"
        file.unlink()
        if left := [path.name for path in folder.iterdir()]:
            yield f"{left} is there"


class Record(Act):
    """What cannot be written ends a record, and no apply that has begun."""

    may_raise = RecordError

    def begin(self) -> None:
        self.begun = False

    def act(self) -> None:
        recorder = Recorder(file)
        self.begun = True
        run(OfLayout.program, sim.runtime, Options(record=recorder)).close()

    def wrong(self, failed: bool) -> Iterator[str]:
        if failed and self.begun:
            yield "the apply failed"
        if sim.alive():
            yield "something is left"


class Value(Act):
    """A value in the folder of a group of ranks: all of it, or none."""

    may_raise = StoreLost
    key = "1/vote/0"

    def begin(self) -> None:
        self.store = FolderStore(folder)

    def act(self) -> None:
        assert self.store.first(self.key, b"yes" * 1000) == b"yes" * 1000
        assert self.store.get(self.key, 0.0, never) == b"yes" * 1000

    def wrong(self, failed: bool) -> Iterator[str]:
        value = FolderStore(folder).get(self.key, 0.0, never)
        if value != b"yes" * 1000 and not (failed and value is None):
            yield f"others read {value and len(value)} bytes"


ACTS = (Sleep, SleepAgain, SleepElsewhere, Wake, WakeOne, Saves, Document, Record, Value)


class Warned(logging.Handler):
    """Keeps what was logged of files that could not be removed."""

    def emit(self, record: logging.LogRecord) -> None:
        if "cannot be removed" in record.getMessage():
            warned.append(record.getMessage())


def calls_fail(act: Act, codes: Sequence[int]) -> tuple[int, list[str]]:
    """How many calls of an act were failed, one in each turn, and what went wrong."""
    wrong: list[str] = []
    for nth in count(1):
        warned.clear()
        code = codes[nth % len(codes)]
        act.begin()
        opened = descriptors(but=SIMULATED) - act.held()
        call, error = failing(nth, code, act)
        where = f"{type(act).__name__}, {call} ({nth}), {os.strerror(code) if code else 'half'}"
        if error and not isinstance(error, act.may_raise):
            wrong.append(f"{where}: {type(error).__name__}: {error}")
        if code == HALF and error:
            wrong.append(f"{where}: {error}")
        if more := descriptors(but=SIMULATED) - act.held() - opened:
            wrong.append(f"{where}: {more:+} descriptors")
        wrong += [f"{where}: {text}" for text in act.wrong(error is not None)]
        act.end()
        for path in folder.iterdir():
            path.unlink()
        if not call or len(wrong) > 20:
            return nth - 1, wrong
    raise AssertionError


def failing(nth: int, code: int, act: Act) -> tuple[str, Exception | None]:
    """Acts once: which call failed, or "", and what the act raised."""
    libc.fail_file(nth, code)
    try:
        act.act()
    except Exception as error:
        error.__traceback__ = error.__context__ = error.__cause__ = None  # their frames hold what is counted
        return libc.fail_file(0, 0).decode(), error
    return libc.fail_file(0, 0).decode(), None


def main() -> None:
    logging.getLogger("hipplan").addHandler(Warned())
    for act in (kind() for kind in ACTS):  # what is imported late is there afterwards
        act.begin()
        act.act()
        act.end()
        for path in folder.iterdir():
            path.unlink()
    failed: dict[str, int] = {}
    wrong: list[str] = []
    for kind in ACTS:
        for codes in CODES:
            calls, more = calls_fail(kind(), codes)
            failed[kind.__name__] = failed.get(kind.__name__, 0) + calls
            wrong += more
    print(json.dumps({"failed": failed, "wrong": wrong}))


if __name__ == "__main__":
    main()
