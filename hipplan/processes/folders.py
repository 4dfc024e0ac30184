"""The folders of this user's sockets: no other user can enter them.

They do not depend on the environment: processes of every shell and service of a user find each other. Only
HIPPLAN_SOCKETS changes that: processes that have it find each other in the folder that it names, and no others.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

ONLY = "HIPPLAN_SOCKETS"
"""The environment variable with the absolute path of the folder to use instead of all others."""
HOLDER = "held-"
"""The prefix of the names of holders' sockets. The name of any other socket begins with the number of its process."""
STALE_S = 60.0
"""A socket without a listening process is removed when it is older; for a younger one, listen() may follow."""
_SHARED = "/tmp"
_IF_YOURS = "if it is yours, move it away, or allow only yourself: chmod 700"


def within(folder: int, name: str) -> str:
    """A socket address that is short enough, however long the folder's path is."""
    return f"/proc/self/fd/{folder}/{name}"


def _runtime_folders() -> list[str]:
    """The user's runtime folders, which the system creates."""
    given = (os.environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{os.geteuid()}")
    return [folder for folder in dict.fromkeys(given) if os.path.isabs(folder)]  # noqa: PTH117


def _shared_prefix() -> str:
    return f"hipplan-{os.geteuid()}-"


def candidates() -> list[str]:
    """The folders that this user's processes use for sockets, as far as they exist: HIPPLAN_SOCKETS alone, if it is
    set."""
    if only := os.environ.get(ONLY):
        return [only]
    paths = [str(Path(folder, "hipplan")) for folder in _runtime_folders()]
    with contextlib.suppress(OSError), os.scandir(_SHARED) as entries:
        shared = (entry.path for entry in entries if entry.name.startswith(_shared_prefix()))
        paths += sorted(path for path in shared if _status(path).st_uid == os.geteuid())
    return paths


def folders() -> list[str]:
    """All folders in which processes of this user may have sockets, and which no other user can enter."""
    return [path for path in candidates() if _is_ours(_status(path))]


def doubts() -> list[tuple[str, str]]:
    """Why folders of this user that exist are not used, and what to do. Processes that began earlier may have sockets
    in them."""
    only = os.environ.get(ONLY)
    if only and not os.path.isabs(only):  # noqa: PTH117
        return [(f"{ONLY} is not an absolute path: {only}", "give it an absolute path")]
    return [
        (f"{path} {_why_unusable(status)}", _IF_YOURS)
        for path in candidates()
        if (status := _status(path)).st_mode and not _is_ours(status) and (only or status.st_uid == os.geteuid())
    ]


def _status(path: str) -> os.stat_result:
    """The status of the path itself, also if it is a link; all zero if nothing is there, or visible."""
    try:
        return os.lstat(path)
    except (OSError, ValueError):
        return os.stat_result([0] * 10)


def _why_unusable(status: os.stat_result) -> str:
    if not stat.S_ISDIR(status.st_mode):
        return "is a link" if stat.S_ISLNK(status.st_mode) else "is not a folder"
    if status.st_uid != os.geteuid():
        return f"belongs to user {status.st_uid}"
    return f"can be entered by other users: its mode is {stat.S_IMODE(status.st_mode):04o}"


def _is_ours(status: os.stat_result) -> bool:
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


@contextlib.contextmanager
def opened(path: str) -> Iterator[int]:
    """Opens a folder that only this user can enter. Raises OSError if other users can."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not _is_ours(status := os.fstat(folder)):
            raise PermissionError(errno.EPERM, f"it {_why_unusable(status)}", path)
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


def sockets() -> Iterator[tuple[int, str]]:
    """All files in the folders of sockets: (folder, name). A folder is open until the next iteration."""
    for path in folders():
        with contextlib.suppress(OSError), opened(path) as folder:
            for name in sorted(os.listdir(folder)):  # noqa: PTH208  # of the checked folder
                yield folder, name


def remove_stale(folder: int, name: str) -> None:
    """Removes an old socket on which no process listens."""
    with contextlib.suppress(OSError):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISSOCK(status.st_mode) and time.time() - status.st_mtime > STALE_S:
            os.unlink(name, dir_fd=folder)
