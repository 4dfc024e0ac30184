"""Measuring this machine for a verb, with the notice that a simulated one deserves."""

from __future__ import annotations

import sys

from hipplan.profiles import Machine


def measured(runtime: str | None) -> Machine:
    """This machine's profile. Raises RuntimeUnavailable."""
    from hipplan.discover import discover
    from hipplan.runtimes import choose

    chosen = choose(runtime)
    if chosen.notice:
        print(f"notice: {chosen.notice}", file=sys.stderr)
    return discover(chosen)
