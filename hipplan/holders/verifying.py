"""The answer of a holder to `hipplan verify`: it cannot read memory back, but reports descriptors whose files have
changed."""

from __future__ import annotations

import datetime

from hipplan.holders.generations import Generation, identities
from hipplan.processes.packets import Message
from hipplan.processes.verifying import DIFFERENCES, answer_with


def verify_answer(current: Generation | None, *, reads_back: bool) -> Message:
    """Returns the answer. current: the generation that attached processes map."""
    layouts = [] if current is None else [_summary(current) | (_checks(current) if reads_back else {})]
    return answer_with(layouts)


def _summary(generation: Generation) -> Message:
    since = datetime.datetime.fromtimestamp(generation.since, datetime.timezone.utc)
    description = generation.description
    return {key: description[key] for key in ("plan", "digest", "machine", "runtime")} | {
        "since": since.isoformat(timespec="seconds"),
        "asleep": {},
        "bytes": sum(description["bytes"].values()),
    }


def _checks(generation: Generation) -> Message:
    current = identities(generation.descriptors)
    differ = [
        number for number, (now, before) in enumerate(zip(current, generation.identities, strict=True)) if now != before
    ]
    differences = [
        {"name": f"descriptor {number}", "what": "file", "desired": "as received", "current": "another, or closed"}
        for number in differ
    ]
    return {"checks": len(current), "differ": len(differ), "differences": differences[:DIFFERENCES]}
