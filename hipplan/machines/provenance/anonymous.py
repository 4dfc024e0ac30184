"""Texts without what names this host, its user, or their folders."""

from __future__ import annotations

import os
import platform
import pwd
import re
from contextlib import suppress
from functools import cache

_FOLDERS = re.compile(r"(?:/[^\s/:'\"]+)+/|/(?=[^\s/]+\.\w)")
_USERS = ("USER", "LOGNAME", "SUDO_USER", "SLURM_JOB_USER")
"""Variables of the environment that name the user."""
_NOBODY = {"", "root", "localhost"}
"""Names that name nobody."""


def without_names(text: str) -> str:
    """The text without folders of paths, and with "(anonymous)" for names of this host and its user."""
    return _names().sub("(anonymous)", _FOLDERS.sub("", text))


def names_somebody(text: str) -> bool:
    """Whether a text has the name of this host or its user, or their home folder."""
    return _names().search(text) is not None


@cache
def _names() -> re.Pattern[str]:
    """Finds the names as whole words."""
    user = home = ""
    with suppress(KeyError):
        entry = pwd.getpwuid(os.geteuid())
        user, home = entry.pw_name, entry.pw_dir
    names = {user, platform.node(), platform.node().partition(".")[0], *(os.environ.get(name, "") for name in _USERS)}
    if user != "root":
        names |= {home, os.environ.get("HOME", "").rstrip("/")}
    longest_first = sorted(names - _NOBODY, key=len, reverse=True)
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first)) or '(?!)'})(?!\w)")
