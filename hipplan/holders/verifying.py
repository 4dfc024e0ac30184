"""`hipplan verify` of a holder: it cannot read memory back, and says whether its descriptors are as they came."""

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
    layouts = [] if current is None else [_described(current) | (_checked(current, request))]
    return {
        "format_version": strict_json.FORMAT_VERSION,
        "process": os.getpid(),
        "command": shlex.join(sys.orig_argv)[:_COMMAND_MAX],
        "layouts": layouts,
    }


def _described(generation: Generation) -> Message:
    begun = datetime.datetime.fromtimestamp(generation.since, datetime.timezone.utc)
    made = generation.made
    return {key: made[key] for key in ("plan", "digest", "machine", "runtime")} | {
        "since": begun.isoformat(timespec="seconds"),
        "asleep": {},
        "bytes": sum(made["bytes"].values()),
    }


def _checked(generation: Generation, request: Message) -> Message:
    if request.get("ask") != "verify":
        return {}
    now = identities(generation.descriptors)
    differ = [number for number, (one, was) in enumerate(zip(now, generation.identities, strict=True)) if one != was]
    found = [
        {"name": f"descriptor {number}", "what": "file", "desired": "as it came", "current": "another, or closed"}
        for number in differ
    ]
    return {"checks": len(now), "differ": len(differ), "differences": found[:1000]}
