"""The whole checkup, as a document."""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from hipplan.checkup.asking import WRONG, Answer, Asking, NoRuntime, answers
from hipplan.checkup.parts import AT_THE_END, PARTS, PROFILE
from hipplan.checkup.question import GIB, Release
from hipplan.machines.doctor.examine import examine
from hipplan.machines.provenance.anonymous import without_names

SECONDS = 300.0
MEMORY = GIB
"""What a checkup takes at most without being told: of devices and host together."""
_OF_ONE_DEVICE = re.compile(r"GPU-[0-9A-Fa-f-]{8,}|\b[0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]\b")
Document = dict[str, Any]
Look = Callable[[str], None]


def examined(runtime: str, memory: int, version: str, look: Look, seconds: float = SECONDS) -> Document:
    """runtime: as of choose(); empty: the default one. look: is called with each part's name before it runs.

    Raises NoRuntime: there is no runtime.
    """
    began = time.monotonic()
    asking = Asking(runtime, memory, began + seconds)
    received: list[Answer] = []
    for part, questions in PARTS.items():
        look(part)
        received += answers(asking, part, questions)
        if part == PROFILE:
            asking = replace(asking, release=_release(received))
    doctor = examine()
    system = {key: value for key, value in doctor.facts["system"].items() if key not in ("huge_pages_of_nodes",)}
    document = {
        "event": "checkup",
        "hipplan": version,
        "date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}",
        "seconds": round(time.monotonic() - began, 1),
        "memory": memory,
        "system": system,
        "libraries": sorted({Path(copy["path"]).name for copy in doctor.facts["libraries"]}),
        "variables": sorted(doctor.facts["environment"]),
        "findings": [
            {"level": finding.level, "topic": finding.topic, "summary": finding.summary} for finding in doctor.findings
        ],
        "left": _left(received),
        "answers": [asdict(answer) for answer in received],
    }
    return {key: anonymous(value) for key, value in document.items()}


def _release(received: list[Answer]) -> Release:
    """Raises NoRuntime: the profile could not be had."""
    seen, why = received[0].seen, received[0].why
    if "HIP" not in seen:
        raise NoRuntime(f"the runtime cannot describe this machine: {why or received[0].outcome}")
    major, minor, *_ = map(int, seen["HIP"].split("."))
    return Release(seen["kind"], (major, minor))


def _left(received: list[Answer]) -> list[int] | None:
    """Bytes of each device that are taken now and were not before: other processes take some, too. None: unknown."""
    ends = [answer.seen.get("free") for answer in received if answer.part in (PROFILE, AT_THE_END)]
    if len(ends) != 2 or None in ends:
        return None
    return [before - after for before, after in zip(*ends, strict=True)]


def is_wrong(document: Document) -> bool:
    return any(answer["outcome"] in WRONG for answer in document["answers"])


def anonymous(value: Any) -> Any:
    """The same without what names the host, its user, their folders, or one device."""
    if isinstance(value, dict):
        return {key: anonymous(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [anonymous(item) for item in value]
    return _OF_ONE_DEVICE.sub("(anonymous)", without_names(value)) if isinstance(value, str) else value
