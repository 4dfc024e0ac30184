"""How many files this process may have open."""

from __future__ import annotations

import resource

_OTHERS = 256
"""For all else that a process has open."""


def make_room(descriptors: int) -> None:
    """Lifts the soft limit for so many, as far as needed and allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = descriptors + _OTHERS
    if soft != resource.RLIM_INFINITY and soft < needed:
        top = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        if top > soft:
            resource.setrlimit(resource.RLIMIT_NOFILE, (top, hard))
