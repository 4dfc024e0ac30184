"""The record of an apply: JSON lines, one when it begins, one for each step, check-up and undo, each with its time.

Writing never fails an apply: a failed write is logged once, and the record ends there.
"""

from __future__ import annotations

import datetime
import errno
import fcntl
import hashlib
import io
import logging
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from hipplan import __version__
from hipplan.errors import RecordError, printable
from hipplan.files import strict_json
from hipplan.files.output import opened_in_place, opened_stream, unwritten
from hipplan.files.strict_json import FORMAT_VERSION
from hipplan.program.program import Program
from hipplan.program.steps import Step

if TYPE_CHECKING:
    from hipplan.language.loader import LoadedPlan
    from hipplan.layout.undo import Undone
    from hipplan.program.checks import Check

log = logging.getLogger("hipplan")

Event = dict[str, Any]
Owned = tuple[int, str, str]
"""Place in the order of creation; name; kind, size and address."""


class Recorder:
    """Writes one record.

    Raises RecordError (HP413, HP416) if the file cannot be written; its old content stays until `begin`.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, locked: str | os.PathLike[str] | None = None, anonymous: bool = False
    ) -> None:
        """locked: the lock that the program follows. anonymous: without what names the host, its user, paths, serial
        numbers of devices, and the commit."""
        # An apply without a record need not wait for these, and one that fails to import them has made nothing.
        from hipplan.machines.provenance import collect
        from hipplan.machines.provenance.anonymous import without_names
        from hipplan.program.written import digest

        self._collect, self._without_names, self._digest = collect, without_names, digest
        self.path = os.fspath(path)
        self._locked = locked
        self._anonymous = anonymous
        self._begun = False
        self._began_ns = monotonic_ns()
        """When the record began; other times count from there."""
        try:
            self._file: io.FileIO | None = io.FileIO(self.path, "a", opener=_open)
            self._claim()
        except (OSError, ValueError) as error:
            busy = isinstance(error, OSError) and error.errno == errno.EBUSY
            hint = f"nothing was done; name {'another file' if busy else 'a file in a folder that can be written'}"
            raise RecordError(unwritten(self.path, "the record", error, hint)) from None

    def _claim(self) -> None:
        """Locks the file: two layouts that write to it would damage both records. Raises OSError."""
        assert self._file is not None
        if not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise OSError(errno.EBUSY, "another open layout is writing to it") from None
        except OSError:  # a file system without locks
            log.debug("the record %r is on a file system without locks", self.path)

    def begin(self, program: Program, runtime: dict[str, Any], steps: int) -> None:
        """The first line. runtime: path, version and driver_version. steps: how many the apply has."""
        machine = None if program.measured is None else program.measured.model_dump(exclude_none=True)
        self._head(
            plan=self._text(program.name),
            source=self._text(program.source),
            digest=program.digest,
            vars=program.variables,
            machine=self._machine(machine),
            runtime={**runtime, "path": self._text(str(runtime["path"]))},
            steps=steps,
            program=self._digest(program),
            lock=None if self._locked is None else hashlib.sha256(Path(self._locked).read_bytes()).hexdigest(),
            provenance=self._collect(runtime, program.measured, anonymous=self._anonymous),
        )

    def _text(self, text: str) -> str:
        """Anonymous: without the folders of paths, and names."""
        return self._without_names(text) if self._anonymous else text

    def _machine(self, machine: dict[str, Any] | None) -> dict[str, Any] | None:
        if machine is None or not self._anonymous:
            return machine
        devices = [{key: value for key, value in device.items() if key != "uuid"} for device in machine["devices"]]
        return {**machine, "name": "", "devices": devices, "sources": []}

    def refused(self, plan: LoadedPlan, error: BaseException) -> None:
        """The lines that an apply lacks when it fails, mostly before its first step."""
        if not self._begun:
            self._head(
                plan=self._text(plan.plan.name or printable(plan.source_name)),
                source=self._text(plan.source_name),
                digest=plan.digest,
                vars=dict(plan.plan.vars),
                machine=None,
                runtime={},
                steps=0,
                program=None,
                lock=None,
                provenance=self._collect(None, None, anonymous=self._anonymous),
            )
        self.failed(error)
        self.end()

    def _head(self, **more: Any) -> None:
        self._begun = True
        self._began_ns = monotonic_ns()
        self._empty()
        self._write(
            "apply",
            format_version=FORMAT_VERSION,
            hipplan=__version__,
            started=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds"),
            process=os.getpid(),
            **more,
        )

    def step(self, step: Step, began_ns: int, took_ns: int, retries: int, error: BaseException | None) -> None:
        """One driver call and its result. began_ns: as of time.monotonic_ns()."""
        result = {"result": "ok"} if error is None else _failure(error)
        times = {"at_us": _us(began_ns - self._began_ns), "us": _us(took_ns)}
        self._write(
            "step", call=step.call, name=step.name, what=self._text(step.describe()), **times, retries=retries, **result
        )

    def changed(self, what: str) -> None:
        """The first line of a change in place. what: its description."""
        self._write("change", what=what)

    def verified(self, checks: int, wrong: Iterable[Check], began_ns: int) -> None:
        """The read-back, which ends now."""
        differences = [{"name": c.name, "what": c.what, "desired": c.desired, "current": c.current} for c in wrong]
        result = "differs" if differences else "ok"
        self._write("verify", checks=checks, **self._since(began_ns), result=result, differences=differences)

    def failed(self, error: BaseException) -> None:
        """Why it is rolled back. A failed driver call also has its own step line."""
        failure = _failure(error)
        self._write("failed", **{key: self._text(value) if key == "why" else value for key, value in failure.items()})

    def undone(self, before: Sequence[Owned], after: Sequence[Owned], undone: Undone, began_ns: int) -> None:
        """What was released. before, after: what was owned before and after it, the latest last."""
        lost = {(failure.name, failure.identity): failure for failure in undone.failures if failure.lost}
        stays = {owner for owner in after if owner[1:] not in lost and owner[1] not in undone.kept}
        for _, name, identity in reversed([owner for owner in before if owner not in stays]):
            failure = lost.get((name, identity))
            kept = "kept" if name in undone.kept else "released"
            result = {"result": kept} if failure is None else {"result": "leaked", "why": failure.driver}
            self._write("undo", name=name, object=identity, **result)
        waits = [failure.driver for failure in undone.failures if not failure.lost]
        summary = undone.summary()
        times = self._since(began_ns)
        self._write("undone", **times, retries=undone.retries, leaks=list(undone.leaks), waits=waits, summary=summary)

    def end(self) -> None:
        """The last line."""
        self._write("end")
        self.close()

    def close(self) -> None:
        """Closes the file without a last line."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):  # a forked child may have the file open still
                fcntl.flock(file, fcntl.LOCK_UN)
            try:
                file.close()
            except OSError as error:  # where some file systems tell that the disk is full
                self._warn(error)

    def _since(self, began_ns: int) -> dict[str, float]:
        """Start and length of what ends now."""
        return {"at_us": _us(began_ns - self._began_ns), "us": _us(monotonic_ns() - began_ns)}

    def _write(self, event: str, **more: Any) -> None:
        if self._file is None:
            return
        line = memoryview(strict_json.dumps({"event": event, **more}, default=str).encode() + b"\n")
        try:
            while line:
                written = self._file.write(line)
                if written is None:
                    raise BlockingIOError(errno.EAGAIN, "its reader is too slow")
                line = line[written:]
        except OSError as error:  # a full disk, a pipe without a reader
            self._warn(error)
            self.close()

    def _empty(self) -> None:
        """Drops what an earlier apply wrote."""
        try:
            if self._file is not None and stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
                self._file.truncate(0)
        except OSError as error:
            self._warn(error)
            self.close()

    def _warn(self, error: OSError) -> None:
        log.warning("the record %r ends here: %s", self.path, error.strerror)


@contextmanager
def recording(
    path: str | os.PathLike[str] | None,
    plan: LoadedPlan,
    *,
    locked: str | os.PathLike[str] | None = None,
    anonymous: bool = False,
) -> Iterator[Recorder | None]:
    """A recorder for an apply of a plan, which also records why it was refused. None without a path. locked, anonymous:
    as of Recorder.

    Raises RecordError (HP413, HP416).
    """
    recorder = None if path is None else Recorder(path, locked=locked, anonymous=anonymous)
    try:
        yield recorder
    except BaseException as error:
        if recorder is not None:
            recorder.refused(plan, error)
        raise


def _open(path: str, _: int) -> int:
    # O_NONBLOCK: a pipe without a reader is an error at once, not a hang.
    stream = opened_stream(path, os.O_NONBLOCK)
    return opened_in_place(path) if stream is None else stream


def _us(took_ns: int) -> float:
    return round(took_ns / 1000, 1)


def _failure(error: BaseException) -> Event:
    if call := getattr(error, "call", ""):
        name, code = getattr(error, "name", ""), getattr(error, "code", 0)
        return {"result": "failed", "error": name, "code": code, "driver_call": call}
    return {"result": "failed", "error": type(error).__name__, "why": str(error)}
