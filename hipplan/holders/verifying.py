"""`hipplan verify` of a holder: it cannot read memory back, but reports descriptors whose files have changed."""

from __future__ import annotations

import contextlib
import datetime
import os
import selectors
import shlex
import sys
import time
from collections.abc import Callable, Iterator

from hipplan.files import strict_json
from hipplan.holders.generations import Generation, identities
from hipplan.processes.messages import Message, Server

_COMMAND_MAX = 2000


class VerifyAnswers:
    """Answers `hipplan verify` from start() to close()."""

    def __init__(self, selector: selectors.BaseSelector, current: Callable[[], Generation | None]) -> None:
        """current: returns the generation to verify."""
        self._selector = selector
        self._server = Server(lambda request: _answer(request, current()))
        self._exit_stack = contextlib.ExitStack()
        self._serves = False

    def start(self) -> None:
        with contextlib.suppress(OSError):  # a sandbox may allow no such socket; the holder works without it
            self._exit_stack.enter_context(self._server)
            self._selector.register(self._server.fileno(), selectors.EVENT_READ, self._server.serve)
            self._serves = True

    def deadlines(self) -> Iterator[float]:
        """The times at which tick() has work to do."""
        if self._serves and (limit_s := self._server.wait_s()) is not None:
            yield time.monotonic() + limit_s

    def tick(self) -> None:
        """Do what is due by now."""
        if self._serves:
            self._server.serve()

    def close(self) -> None:
        self._exit_stack.close()


def _answer(request: Message, current: Generation | None) -> Message:
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
