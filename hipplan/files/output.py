"""Files that hipplan writes: all of one or nothing of it, and what stood there before stays until then."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import re
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

from hipplan.errors import Diagnostic, PlanError, reason_of

_PART = re.compile(r"\.hipplan-[0-9a-f]{16}\.part")
_DESCRIPTORS = "/proc/self/fd"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


@contextlib.contextmanager
def replacing(path: str) -> Iterator[int]:
    """The descriptor of a new file, which takes the place of `path` if nothing goes wrong.

    A link stays one, and an old file's rights stay as they are. Raises OSError, also for what is no ordinary file.
    """
    rights = _rights(path)
    target = Path(os.path.realpath(path))
    _remove_stale(str(target.parent))
    beside = _beside(target)
    descriptor = _nameless(target.parent)
    has_name = descriptor < 0
    if has_name:
        beside, descriptor = _new_beside(target)
    try:
        if rights is not None:
            os.fchmod(descriptor, rights)
        yield descriptor
        if not has_name:  # any descriptor of a folder does: with one, links are followed to the file
            os.link(f"{_DESCRIPTORS}/{descriptor}", beside, src_dir_fd=descriptor, follow_symlinks=True)
        closing, descriptor = descriptor, -1
        os.close(closing)  # where some file systems tell that the disk is full
        beside.replace(target)
    except BaseException:
        if descriptor >= 0:
            os.close(descriptor)
        with contextlib.suppress(OSError):
            beside.unlink()
        raise


def check_replacing(path: str, what: str) -> None:
    """Raises PlanError (HP413) now where replacing() would raise, which may be hours later."""
    try:
        _rights(path)
        target = Path(os.path.realpath(path))
        _remove_stale(str(target.parent))
        beside = _beside(target)
        os.close(os.open(beside, _NEW, 0o666))
        beside.unlink(missing_ok=True)  # another process may have removed it as a leftover
    except (OSError, ValueError) as error:
        hint = "nothing was changed; name a file in a writable folder"
        raise PlanError(_unwritten(path, what, error, hint)) from None


def write_document(path: str, text: str, what: str, *, in_place: bool = False) -> None:
    """Writes a document as UTF-8. Raises PlanError (HP413).

    in_place: what was read from there is replaced. Otherwise a pipe or a device is written to, as a shell does.
    """
    try:
        if _is_stream(path) and not in_place:
            Path(path).write_bytes(text.encode())
            return
        with _replacing_whole(path) as descriptor:
            left = memoryview(text.encode())
            while left:
                left = left[os.write(descriptor, left) :]
    except (OSError, ValueError) as error:
        raise PlanError(_unwritten(path, what, error)) from None


def _unwritten(path: str, what: str, error: Exception, hint: str = "") -> Diagnostic:
    return Diagnostic("HP413", f"{what} {path!r} cannot be written", why=reason_of(error), hint=hint)


def _beside(target: Path) -> Path:
    return target.with_name(f".hipplan-{os.urandom(8).hex()}.part")  # as short for the longest name


@contextlib.contextmanager
def _replacing_whole(path: str) -> Iterator[int]:
    """As replacing(); a signal waits until the file is there."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    try:
        with replacing(path) as descriptor:
            yield descriptor
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _nameless(folder: Path) -> int:
    """A new file without a name, of which nothing is left when this process is killed. -1: the file system has none."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, 0o666)
        if Path(f"{_DESCRIPTORS}/{descriptor}").exists():
            return descriptor
        os.close(descriptor)  # nothing can give it a name where there is no /proc
    return -1


def _new_beside(target: Path) -> tuple[Path, int]:
    """A file that no other process removes as long as it is open."""
    while True:
        beside = _beside(target)
        descriptor = os.open(beside, _NEW, 0o666)
        with contextlib.suppress(OSError):  # a file system without locks, where nothing is removed
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return beside, descriptor
        os.close(descriptor)  # another process removed it before it was locked


@functools.cache
def _remove_stale(folder: str) -> None:
    """What processes that were killed while they wrote a file have left in a folder; looked for once."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for part in [entry.path for entry in entries if _PART.fullmatch(entry.name)]:
            with contextlib.suppress(OSError):
                _remove_if_stale(part)


def _remove_if_stale(part: str) -> None:
    """A file of this user that no process holds. Raises OSError: it is not."""
    descriptor = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            Path(part).unlink()
    finally:
        os.close(descriptor)


def _is_stream(path: str) -> bool:
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def _rights(path: str) -> int | None:
    """Of the file that is there, None if there is none."""
    if not path or path.endswith("/"):
        raise OSError(errno.EISDIR, "it names a folder", path)
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is a folder" if stat.S_ISDIR(mode) else "it is not a regular file", path)
    if not os.access(path, os.W_OK):  # a new file in its place would not ask
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), path)
    return stat.S_IMODE(mode)
