"""Names of files to write, replace and remove, in folders where other users may write too.

Nothing is done through a link, or to what belongs to another user. A folder is opened once: whatever becomes of its
path afterwards, the files stay in that folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from typing_extensions import Self

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_LINKS_MAX = 40
"""Linux follows as many in one path."""


class UnsafeFile(OSError):
    """What is there may have been put there by another user. `strerror` says what it is."""

    def __init__(self, why: str, path: str, hint: str = "name another file") -> None:
        super().__init__(errno.EPERM, why, path)
        self.hint = hint


class NameInFolder:
    """A name in an open folder, of a file or of nothing yet. It is a context manager, which closes the folder."""

    def __init__(self, path: str) -> None:
        """Raises OSError; UnsafeFile: the path leads through a link of another user; ValueError: no file can have this
        name."""
        if b"\0" in os.fsencode(path):
            raise ValueError("a NUL would end the path")
        folder, self.name = os.path.split(path)
        if self.name in ("", ".", ".."):
            raise IsADirectoryError(errno.EISDIR, "it names a folder", path)
        self.path = path
        self.folder = _opened_folder(folder or ".")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        with contextlib.suppress(OSError):  # what was done there is done
            os.close(self.folder)

    @property
    def resolved(self) -> str:
        """The path without links. Raises OSError."""
        return os.path.join(os.readlink(f"/proc/self/fd/{self.folder}"), self.name)  # noqa: PTH115, PTH118

    def status(self) -> os.stat_result | None:
        """What is there: a file, or a link itself; None if nothing is. Raises OSError."""
        try:
            return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def require_ours(self, *, private: bool = False) -> os.stat_result | None:
        """What is there, if it may be replaced: a file of this user that may be written. None if nothing is there.

        private: only this user may open it. Raises OSError: it is no regular file, or read-only; UnsafeFile.
        """
        status = self.status()
        if status is None:
            return None
        if stat.S_ISLNK(status.st_mode):
            self._require_regular(self._leads_to() or status)
            raise self.refused_link()
        self._require_ours(status, private=private)
        if not os.access(self.name, os.W_OK, dir_fd=self.folder):  # a new file in its place would not ask
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), self.path)
        return status

    def require_ours_open(self, descriptor: int, *, private: bool = False) -> None:
        """Does what require_ours() does, for a file that was opened here: to write to it, or with private= to read it.

        Raises UnsafeFile also where a file to write to has other names. With a hard link, another user can give any
        file of this user a name in any folder.
        """
        status = os.fstat(descriptor)
        self._require_ours(status, private=private)
        if status.st_nlink > 1 and not private:
            raise UnsafeFile("it has other names, too: hard links", self.path)

    def refused_link(self) -> UnsafeFile:
        """The error for a link."""
        return UnsafeFile("it is a link", self.path, f"name the file itself: {os.path.realpath(self.path)}")

    def _leads_to(self) -> os.stat_result | None:
        with contextlib.suppress(OSError):
            return os.stat(self.name, dir_fd=self.folder)
        return None

    def _require_ours(self, status: os.stat_result, *, private: bool) -> None:
        self._require_regular(status)
        require_owner(status, self.path)
        if private and status.st_mode & 0o077:
            why = f"other users may open it: its mode is {stat.S_IMODE(status.st_mode):04o}"
            raise UnsafeFile(why, self.path, "remove it, or name another file")

    def _require_regular(self, status: os.stat_result) -> None:
        """Raises OSError."""
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISLNK(status.st_mode):
            what = "it is a folder" if stat.S_ISDIR(status.st_mode) else "it is not a regular file"
            raise OSError(errno.EINVAL, what, self.path)


def require_owner(status: os.stat_result, path: str) -> None:
    """Raises UnsafeFile: it belongs to another user."""
    if status.st_uid != os.geteuid():
        raise UnsafeFile(f"it belongs to another user, {status.st_uid}", path)


def _opened_folder(path: str) -> int:
    """A descriptor of a folder. Raises OSError; UnsafeFile for a link that Linux refuses to follow where
    fs.protected_symlinks is set: of another user, in a folder where everybody can make one."""
    here = os.open("/" if path.startswith("/") else ".", _FOLDER)
    left, links = path.split("/")[::-1], 0
    try:
        while left:
            if not (name := left.pop()):
                continue
            try:  # a folder first: only then a file system is mounted where the automounter waits for that
                there = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=here)
            except NotADirectoryError:
                links += 1
                if links > _LINKS_MAX:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path) from None
                target = _target(name, here, path)
                left += target.split("/")[::-1]
                if not target.startswith("/"):
                    continue
                there = os.open("/", _FOLDER)
            here, left_behind = there, here
            os.close(left_behind)
    except BaseException:
        os.close(here)
        raise
    return here


def _target(name: str, folder: int, path: str) -> str:
    """Where a link leads that may be trusted. Raises OSError, UnsafeFile."""
    link = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        status, around = os.fstat(link), os.fstat(folder)
        if not stat.S_ISLNK(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        open_to_all = around.st_mode & stat.S_ISVTX and around.st_mode & stat.S_IWOTH
        if open_to_all and status.st_uid not in (os.geteuid(), around.st_uid):
            why = f"'{name}' on the way there is a link of another user, {status.st_uid}"
            raise UnsafeFile(why, path, "name a folder that no other user can change")
        return os.readlink("", dir_fd=link)
    finally:
        os.close(link)
