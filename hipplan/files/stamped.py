"""Documents that hipplan wrote: whether somebody edited them since. A digest in the first comment tells."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path

from hipplan.errors import Diagnostic, PlanError

_STAMP = re.compile(r" \(digest ([0-9a-f]{12})\)")
_LARGEST_BYTES = 1 << 26
"""A larger file was not written by hipplan."""


def stamped(text: str, after: str) -> str:
    """The text with its digest behind the first place where `after` stands, which must be in a comment."""
    before, until, rest = text.partition(after)
    return f"{before}{until} (digest {_digest(text)}){rest}"


def require_unedited(path: str, what: str) -> None:
    """Raises PlanError (HP413) if a file is there that is not as stamped() made it.

    Files that must not be written at all, such as links, are left to what writes them.
    """
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_nlink > 1:
            return
        text = Path(path).read_bytes().decode("utf-8", "replace") if status.st_size <= _LARGEST_BYTES else ""
    except (OSError, ValueError):
        return
    stamp = _STAMP.search(text)
    if stamp is None or _digest(text[: stamp.start()] + text[stamp.end() :]) != stamp[1]:
        why = "it was edited, or hipplan did not write it"
        hint = "name another file, or replace this one: --force"
        raise PlanError(Diagnostic("HP413", f"{what} {path!r} would be overwritten", why=why, hint=hint))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
