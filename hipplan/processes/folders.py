"""The folders of this user's sockets: no other user can enter them.

They do not depend on the environment: processes of every shell and service of a user find each other. Only
HIPPLAN_SOCKETS changes that: processes that have it find each other in the folder that it names, and no others.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

ONLY = "HIPPLAN_SOCKETS"
"""The environment variable with the absolute path of the folder to use instead of all others."""
_SHARED = "/tmp"


def within(folder: int, name: str) -> str:
    """A socket address that is short enough, however long the folder's path is."""
    return f"/proc/self/fd/{folder}/{name}"


def _runtime_folders() -> list[str]:
    """The user's runtime folders, which the system creates."""
    given = (os.environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{os.geteuid()}")
    return [folder for folder in dict.fromkeys(given) if os.path.isabs(folder)]  # noqa: PTH117


def _shared_prefix() -> str:
    return f"hipplan-{os.geteuid()}-"


def folders() -> list[str]:
    """All folders in which processes of this user may have sockets: HIPPLAN_SOCKETS alone, if it is set."""
    if only := os.environ.get(ONLY):
        return [only]
    paths = [str(Path(folder, "hipplan")) for folder in _runtime_folders()]
    with contextlib.suppress(OSError), os.scandir(_SHARED) as entries:
        paths += sorted(
            entry.path
            for entry in entries
            if entry.name.startswith(_shared_prefix()) and _is_ours(entry.stat(follow_symlinks=False))
        )
    return paths


def _is_ours(status: os.stat_result) -> bool:
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


@contextlib.contextmanager
def opened(path: str) -> Iterator[int]:
    """Opens a folder that only this user can enter. Raises OSError if other users can."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not _is_ours(os.fstat(folder)):
            raise PermissionError(errno.EPERM, "other users can access it", path)
        yield folder
    finally:
        os.close(folder)


def new_folder() -> int:
    """Returns an open descriptor of the folder for a new socket. Raises OSError."""
    if only := os.environ.get(ONLY):
        if not os.path.isabs(only):  # noqa: PTH117
            raise OSError(errno.EINVAL, f"{ONLY} is not an absolute path", only)
        return _made(Path(only))
    for runtime in _runtime_folders():
        with contextlib.suppress(OSError):
            return _made(Path(runtime, "hipplan"))
    for shared in folders():
        with contextlib.suppress(OSError), opened(shared) as folder:
            return os.dup(folder)
    import tempfile  # slow to import, and seldom needed

    made = tempfile.mkdtemp(prefix=_shared_prefix(), dir=_SHARED)  # a new name, which no other user can have created
    with opened(made) as folder:
        return os.dup(folder)


def _made(path: Path) -> int:
    """Makes a folder, unless it is there, and returns an open descriptor of it. Raises OSError."""
    path.mkdir(mode=0o700, exist_ok=True)
    with opened(str(path)) as folder:
        return os.dup(folder)
