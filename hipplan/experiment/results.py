"""results.jsonl: one line of JSON for each repetition, whole or not at all.

A line is appended with a single write, so a process that is killed leaves at most one torn line, the last one. It is
dropped when the experiment is resumed, and ignored by reports.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hipplan.errors import Diagnostic, PlanError, reason_of
from hipplan.experiment.grid import Cell
from hipplan.files import strict_json
from hipplan.files.output import opened_in_place, unwritten
from hipplan.files.strict_json import FORMAT_VERSION

ResultLine = dict[str, Any]
OK, FAILED = "ok", "failed"
LINE_MAX = 16 << 20
"""Bytes of a line that is read."""
_BEGIN = strict_json.dumps({"event": "repetition"}).encode()[:-1]
"""How each line begins."""
_FIELDS = {
    "experiment": dict,
    "cell": dict,
    "repetition": int,
    "result": str,
    "metrics": dict,
    "units": dict,
    "plan": dict,
    "provenance": dict,
}


class Results:
    """A file of results that this process appends to."""

    def __init__(self, path: str, descriptor: int, lines: list[ResultLine]) -> None:
        self.path = path
        self.lines = lines
        """The lines that were there before."""
        self._descriptor = descriptor

    def append(self, line: ResultLine) -> ResultLine:
        """One repetition: its line is whole in the file, or not there. Returns the line as the file has it.

        Raises PlanError (HP413): it cannot be written, or the file is no longer there; then its lines are kept.
        """
        line = {"event": "repetition", "format_version": FORMAT_VERSION, **line}
        data = strict_json.dumps(line).encode() + b"\n"
        size = os.fstat(self._descriptor).st_size
        try:
            written = os.write(self._descriptor, data)
            if written != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fdatasync(self._descriptor)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._descriptor, size)
            hint = "the repetitions before it are kept: `hipplan experiment resume` goes on from there"
            raise PlanError(unwritten(self.path, "the results", error, hint)) from None
        if (elsewhere := self.kept_elsewhere()) is not None:
            gone = OSError(None, "the file was removed, renamed or replaced while the experiment ran")
            raise PlanError(unwritten(self.path, "the results", gone, elsewhere))
        return line

    def kept_elsewhere(self) -> str | None:
        """Writes the lines to a new file if the path leads to this one no longer; a hint where they are. None: it
        does."""
        with suppress(OSError):
            if os.path.samestat(os.stat(self.path), os.fstat(self._descriptor)):  # noqa: PTH116
                return None
        why = ""
        for path in (self.path, f"{self.path}.kept", *(f"{self.path}.kept.{number}" for number in range(2, 100))):
            try:
                with Path(path).open("xb") as file, Path(f"/proc/self/fd/{self._descriptor}").open("rb") as lines:
                    shutil.copyfileobj(lines, file)
            except FileExistsError:
                continue
            except OSError as error:
                why = f"{path} cannot be written either: {reason_of(error)}"
                break
            return f"its lines are in {path} now: `hipplan experiment resume` with -o {path} goes on from there"
        if os.fstat(self._descriptor).st_nlink:
            path = os.readlink(f"/proc/self/fd/{self._descriptor}")  # noqa: PTH115
            return f"its lines are in {path}: `hipplan experiment resume` with -o {path} goes on from there"
        return f"its lines are lost: {why or f'{self.path} and all names from {self.path}.kept on are other files'}"


@contextmanager
def opened(path: str, *, resume: bool) -> Iterator[Results]:
    """The results to append to; another process that appends to them is refused until the end.

    resume: go on with what is there; otherwise the file must be new, or empty. Raises PlanError: HP413 and HP416 it
    cannot be written, HP461 it has results already, or something else.
    """
    descriptor = _locked(path)
    try:
        size = os.fstat(descriptor).st_size
        lines = read(path) if size else []
        if size and not resume:
            why, hint = f"{path} has {size:,} bytes", "resume goes on with them; -o names another file"
            raise PlanError(Diagnostic("HP461", "there are results already", why=why, hint=hint))
        if size:
            os.ftruncate(descriptor, _whole(path))
        yield Results(path, descriptor, lines)
    finally:
        os.close(descriptor)


def _locked(path: str) -> int:
    descriptor = -1
    try:
        descriptor = opened_in_place(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OSError(errno.EBUSY, "another run of an experiment is writing to it") from None
        except OSError:  # a file system without locks
            pass
        return descriptor
    except (OSError, ValueError) as error:
        if descriptor >= 0:
            os.close(descriptor)
        raise PlanError(unwritten(path, "the results", error, "-o names another file")) from None


def read(path: str) -> list[ResultLine]:
    """The whole lines of a file of results. Raises PlanError: HP001 it cannot be read, HP461 it is something else."""
    lines = []
    known: dict[tuple[str, str, int], int] = {}
    try:
        with Path(path).open("rb") as file:
            for number, text in enumerate(iter(lambda: file.readline(LINE_MAX + 1), b""), 1):
                if len(text) > LINE_MAX:
                    raise _bad_line(number, f"has more than {LINE_MAX:,} bytes", path)
                if text.endswith(b"\n"):
                    line = _line(text, number, path)
                    key = str(line["experiment"].get("digest")), cell_of(line).key, line["repetition"]
                    if (first := known.setdefault(key, number)) != number:
                        why = f"lines {first} and {number} are the same repetition of the same cell"
                        raise not_results(why, path, f"remove line {first} or line {number}, or name another file")
                    lines.append(line)
                elif text[: len(_BEGIN)] != _BEGIN[: len(text)]:  # else torn by a process that was killed
                    raise _bad_line(number, "is not a repetition", path)
    except (OSError, ValueError) as error:
        raise PlanError(Diagnostic("HP001", f"cannot read {path}: {reason_of(error)}")) from None
    return lines


def _line(text: bytes, number: int, path: str) -> ResultLine:
    try:
        line = strict_json.loads(text)
    except (ValueError, RecursionError):
        raise _bad_line(number, "is not JSON", path) from None
    if not isinstance(line, dict) or line.get("event") != "repetition":
        raise _bad_line(number, "is not a repetition", path)
    if line.get("format_version") != FORMAT_VERSION:
        raise _bad_line(number, f"has the format version {line.get('format_version')!r:.40}", path)
    for key, kind in _FIELDS.items():
        if line.get(key).__class__ is not kind:
            raise _bad_line(number, f"has no {key} that can be read", path)
    is_good = {
        "cell": all(_is_point(line["cell"].get(key)) for key in ("vary", "env")),
        "result": line["result"] in (OK, FAILED),
        "units": all(isinstance(unit, str) for unit in line["units"].values()),
        "provenance": _is_runtime(line["provenance"].get("runtime")),
    }
    if wrong := [key for key, good in is_good.items() if not good]:
        raise _bad_line(number, f"has no {wrong[0]} that can be read", path)
    if not all(value.__class__ in (int, float) for value in line["metrics"].values()):
        raise _bad_line(number, "has a metric that is not a number", path)
    return line


def _is_point(values: object) -> bool:
    """Whether these are values of axes by name."""
    return isinstance(values, dict) and all(value.__class__ in (int, bool, str) for value in values.values())


def _is_runtime(runtime: object) -> bool:
    """Whether this is what the provenance says of a runtime; None: none was opened."""
    return runtime is None or (isinstance(runtime, dict) and isinstance(runtime.get("kind", ""), str))


def cell_of(line: ResultLine) -> Cell:
    return Cell(line["cell"]["vary"], line["cell"]["env"])


def _bad_line(number: int, why: str, path: str) -> PlanError:
    remove = f"remove line {number}" if number > 1 else "remove line 1 if others are results"
    return not_results(f"line {number} {why}", path, f"{remove}, or name another file")


def not_results(why: str, path: str, hint: str = "`hipplan experiment run FILE` writes results") -> PlanError:
    return PlanError(Diagnostic("HP461", f"these results cannot be used: {path}", why=why, hint=hint))


def _whole(path: str) -> int:
    """How many bytes of a file are whole lines."""
    with Path(path).open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            begin = max(0, end - 65536)
            file.seek(begin)
            at = file.read(end - begin).rfind(b"\n")
            if at >= 0:
                return begin + at + 1
            end = begin
    return 0
