"""Reading the record of an apply: a file that is not a record is an HP414, one that ends in the middle is shown as far
as it goes."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hipplan.errors import Diagnostic, PlanError, RecordError, reason_of
from hipplan.files import strict_json
from hipplan.files.strict_json import FORMAT_VERSION
from hipplan.language.source import load_yaml

MAX_BYTES = 256 << 20
MAX_LINE_BYTES = 4 << 20

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Record:
    """The content of a record."""

    events: tuple[Event, ...]
    """The first is `apply`."""
    complete: bool
    """False: the process was killed, is still running, or could not write any more."""

    @property
    def head(self) -> Event:
        return self.events[0]

    def of(self, kind: str) -> list[Event]:
        """The events of one kind."""
        return [event for event in self.events if event["event"] == kind]


_FIELDS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "apply": {"plan": str, "digest": str, "vars": dict, "runtime": dict, "steps": int, "started": str, "source": str},
    "step": {
        "call": str,
        "name": str,
        "what": str,
        "at_us": (int, float),
        "us": (int, float),
        "retries": int,
        "result": str,
    },
    "change": {"what": str},
    "verify": {"checks": int, "at_us": (int, float), "us": (int, float), "result": str, "differences": list},
    "failed": {"error": str},
    "undo": {"name": str, "object": str, "result": str},
    "undone": {"at_us": (int, float), "us": (int, float), "retries": int, "leaks": list, "summary": str},
    "end": {},
}
"""What of an event is relied on; more may be there."""


def read(path: str | os.PathLike[str]) -> Record:
    """Reads a record. Raises RecordError (HP414) if it is none."""
    name = os.fspath(path)
    events: list[Event] = []
    complete = False
    try:
        file = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(file, "rb") as lines:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise _no_record(name, 0, "it is not a file")
            if os.fstat(file).st_size > MAX_BYTES:
                raise _no_record(name, 0, f"it is larger than {MAX_BYTES >> 20} MiB")
            number = 0
            while line := lines.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(line) > MAX_LINE_BYTES:
                    raise _no_record(name, number, "the line is too long")
                if not line.endswith(b"\n") and events:
                    break  # cut off while it was written
                try:
                    events.append(_event(line, name, number, first=not events))
                except RecordError:
                    if not events:
                        _refuse_another_kind(name)
                    raise
                complete = events[-1]["event"] == "end"
    except (OSError, ValueError) as error:
        raise _no_record(name, 0, reason_of(error)) from None
    if not events:
        raise _no_record(name, 0, "it is empty")
    return Record(tuple(events), complete)


def _refuse_another_kind(name: str) -> None:
    try:
        load_yaml(Path(name), wanted="record")
    except PlanError as error:
        if error.diagnostics[0].code == "HP014":
            raise RecordError(error.diagnostics) from None


def _event(line: bytes, file: str, number: int, first: bool) -> Event:
    try:
        event = strict_json.loads(line)
    except (ValueError, RecursionError) as error:
        what = str(error) if "representable" in str(error) else "the line is not JSON"
        raise _no_record(file, number, what) from None
    if not isinstance(event, dict) or not isinstance(kind := event.get("event"), str) or kind not in _FIELDS:
        raise _no_record(file, number, "the line is not an event of a record")
    if (kind == "apply") != first:
        raise _no_record(file, number, "a record begins with one apply")
    if first and event.get("format_version") != FORMAT_VERSION:
        why = f"its format version is {event.get('format_version')!r:.40}, this hipplan reads {FORMAT_VERSION}"
        raise _no_record(file, number, why)
    for key, wanted in _FIELDS[kind].items():
        if not isinstance(event.get(key), wanted):
            raise _no_record(file, number, f"{kind} has no {key} that can be read")
    return event


def _no_record(file: str, number: int, why: str) -> RecordError:
    where = f"{file}, line {number}" if number else file
    hint = "`hipplan apply --record FILE` writes one"
    return RecordError(Diagnostic("HP414", f"this is not a record of an apply: {where}", why=why, hint=hint))
