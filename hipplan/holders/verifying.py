"""`hipplan verify` of a holder: it cannot read memory back, but reports descriptors whose files have changed."""

from __future__ import annotations

import datetime
import os
import shlex
import sys

from hipplan.files import strict_json
from hipplan.holders.generations import Generation, identities
from hipplan.processes.messages import Message

_COMMAND_MAX = 2000


def answer(request: Message, current: Generation | None) -> Message:
    """As hipplan.processes.verifying.answer()."""
    layouts = [] if current is None else [_summary(current) | _checks(current, request)]
    return {
        "format_version": strict_json.FORMAT_VERSION,
        "process": os.getpid(),
        "command": shlex.join(sys.orig_argv)[:_COMMAND_MAX],
        "layouts": layouts,
    }


def _summary(generation: Generation) -> Message:
    since = datetime.datetime.fromtimestamp(generation.since, datetime.timezone.utc)
    description = generation.description
    return {key: description[key] for key in ("plan", "digest", "machine", "runtime")} | {
        "since": since.isoformat(timespec="seconds"),
        "asleep": {},
        "bytes": sum(description["bytes"].values()),
    }


def _checks(generation: Generation, request: Message) -> Message:
    if request.get("ask") != "verify":
        return {}
    current = identities(generation.descriptors)
    differ = [
        number for number, (now, before) in enumerate(zip(current, generation.identities, strict=True)) if now != before
    ]
    differences = [
        {"name": f"descriptor {number}", "what": "file", "desired": "as received", "current": "another, or closed"}
        for number in differ
    ]
    return {"checks": len(current), "differ": len(differ), "differences": differences[:1000]}
