"""Measuring this machine for a verb, with the notice that a simulated one deserves."""

from __future__ import annotations

import sys

from hipplan.machine import Machine
from hipplan.missing import compiled_part_missing


def measured(runtime: str | None) -> Machine:
    """This machine's profile. Raises RuntimeUnavailable."""
    try:
        from hipplan.discover import discover
        from hipplan.runtimes import choose
    except ModuleNotFoundError as error:
        if error.name == "hipplan._core":
            raise compiled_part_missing() from None
        raise
    chosen = choose(runtime)
    if chosen.notice:
        print(f"notice: {chosen.notice}", file=sys.stderr)
    return discover(chosen)
