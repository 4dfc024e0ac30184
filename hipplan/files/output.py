"""Files that hipplan writes: all of one or nothing of it, and what stood there before stays until then."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import signal
import stat
from collections.abc import Iterator

from hipplan.errors import Diagnostic, PlanError, reason_of
from hipplan.files.places import NameInFolder, UnsafeFile, require_owner

_PART = re.compile(r"\.hipplan-[0-9a-f]{16}\.part")
_DESCRIPTORS = "/proc/self/fd"
_OWN = re.compile(r"/dev/(stdout|stderr|fd/[0-9]+)|/proc/self/fd/[0-9]+")
"""Names of what this process has open already, which may be anything."""
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ALL, _PRIVATE = 0o666, 0o600


@contextlib.contextmanager
def replacing(path: str, *, private: bool = False) -> Iterator[int]:
    """The descriptor of a new file, which takes the place of `path` if nothing goes wrong.

    An old file's rights stay as they are. private: only this user may open the new file, and what is there already is
    replaced only if that is so for it, too. Raises OSError, also for what is no ordinary file; UnsafeFile for a link
    and for a file of another user.
    """
    with NameInFolder(path) as place:
        old = place.require_ours(private=private)
        _remove_stale(place.folder)
        part, descriptor = _new_part(place.folder, _PRIVATE if private else _ALL)
        try:
            if private:
                _require_private(descriptor, path)
            elif old is not None:
                os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
            yield descriptor
            if not part:  # any descriptor of a folder does: with one, links are followed to the file
                part = _part()
                unnamed = f"{_DESCRIPTORS}/{descriptor}"
                os.link(unnamed, part, src_dir_fd=place.folder, dst_dir_fd=place.folder, follow_symlinks=True)
            closing, descriptor = descriptor, -1
            os.close(closing)  # where some file systems tell that the disk is full
            place.require_ours(private=private)  # what is there may have come in the meantime
            os.rename(part, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
        except BaseException:
            if descriptor >= 0:
                os.close(descriptor)
            _unlink(part, place.folder)
            raise


def check_replacing(path: str, what: str) -> None:
    """Raises PlanError (HP413, HP416) now where replacing() would raise, which may be hours later."""
    try:
        with NameInFolder(path) as place:
            place.require_ours()
            part, descriptor = _named_part(place.folder, _ALL)
            os.close(descriptor)
            _unlink(part, place.folder)
    except (OSError, ValueError) as error:
        hint = "nothing was changed; name a file in a writable folder"
        raise PlanError(unwritten(path, what, error, hint)) from None


def write_document(path: str, text: str, what: str, *, in_place: bool = False) -> None:
    """Writes a document as UTF-8. Raises PlanError (HP413, HP416).

    in_place: what was read from there is replaced. Otherwise a pipe or a device is written to, as a shell does.
    """
    try:
        stream = None if in_place else opened_stream(path)
        with _replacing_whole(path) if stream is None else _closing(stream) as descriptor:
            left = memoryview(text.encode())
            while left:
                left = left[os.write(descriptor, left) :]
    except (OSError, ValueError) as error:
        raise PlanError(unwritten(path, what, error)) from None


def opened_stream(path: str, flags: int = 0) -> int | None:
    """A descriptor for writing to a pipe, a device, or what this process has open already, as /dev/stdout.

    None: there is nothing, or a file. Raises OSError; UnsafeFile: the pipe belongs to another user.
    """
    try:
        mode, is_own = os.stat(path).st_mode, bool(_OWN.fullmatch(path))  # noqa: PTH116
    except OSError:
        return None
    if not is_own and not stat.S_ISFIFO(mode) and not stat.S_ISCHR(mode):
        return None
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_CLOEXEC | flags)
    try:
        status = os.fstat(descriptor)
        if not is_own and not stat.S_ISCHR(status.st_mode):
            require_owner(status, path)
            if not stat.S_ISFIFO(status.st_mode):
                raise OSError(errno.EINVAL, "it was replaced meanwhile", path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def opened_in_place(path: str) -> int:
    """A descriptor for appending to a file of this user, which is made if there is none.

    Raises OSError; UnsafeFile: it is a link, has other names, or belongs to another user.
    """
    with NameInFolder(path) as place:
        try:
            # O_NONBLOCK: a pipe without a reader is an error at once, not a hang.
            wanted = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            descriptor = os.open(place.name, wanted, _ALL, dir_fd=place.folder)
        except OSError as error:
            raise place.refused_link() if error.errno == errno.ELOOP else error from None
        try:
            place.require_ours_open(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def unwritten(path: str, what: str, error: Exception, hint: str = "") -> Diagnostic:
    """HP416 where another user may have put there what is there, else HP413."""
    unsafe = isinstance(error, UnsafeFile)
    hint = error.hint if isinstance(error, UnsafeFile) else hint
    code = "HP416" if unsafe else "HP413"
    return Diagnostic(code, f"{what} {path!r} cannot be written".lstrip(), why=reason_of(error), hint=hint)


@contextlib.contextmanager
def _replacing_whole(path: str) -> Iterator[int]:
    """Replaces a file as replacing() does; a signal waits until the file is there."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    try:
        with replacing(path) as descriptor:
            yield descriptor
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _part() -> str:
    return f".hipplan-{os.urandom(8).hex()}.part"  # as short for the longest name


def _new_part(folder: int, mode: int) -> tuple[str, int]:
    """A new file: name and descriptor. Without a name, if possible: nothing is left of it if this process is killed."""
    with contextlib.suppress(OSError):
        descriptor = os.open(".", os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, mode, dir_fd=folder)
        if os.path.exists(f"{_DESCRIPTORS}/{descriptor}"):  # noqa: PTH110
            return "", descriptor
        os.close(descriptor)  # nothing can give it a name where there is no /proc
    return _named_part(folder, mode)


def _named_part(folder: int, mode: int) -> tuple[str, int]:
    """A file that no other process removes as long as it is open."""
    while True:
        part = _part()
        descriptor = os.open(part, _NEW, mode, dir_fd=folder)
        with contextlib.suppress(OSError):  # a file system without locks, where nothing is removed
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return part, descriptor
        os.close(descriptor)  # another process removed it before it was locked


def _unlink(part: str, folder: int) -> None:
    if part:
        with contextlib.suppress(OSError):
            os.unlink(part, dir_fd=folder)


def _require_private(descriptor: int, path: str) -> None:
    """Raises UnsafeFile where the file system has no owners or rights."""
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        why = "its file system does not keep a file from other users"
        raise UnsafeFile(why, path, "name a file on another file system")


_looked_through: set[tuple[int, int]] = set()
"""Folders, by device and inode."""


def _remove_stale(folder: int) -> None:
    """What processes that were killed while they wrote a file have left in a folder; looked for once."""
    status = os.fstat(folder)
    if (status.st_dev, status.st_ino) in _looked_through:
        return
    _looked_through.add((status.st_dev, status.st_ino))
    with contextlib.suppress(OSError):
        readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
        try:
            for part in filter(_PART.fullmatch, os.listdir(readable)):  # noqa: PTH208
                with contextlib.suppress(OSError):
                    _remove_if_stale(part, folder)
        finally:
            os.close(readable)


def _remove_if_stale(part: str, folder: int) -> None:
    """A file of this user that no process holds. Raises OSError: it is not."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(part, flags, dir_fd=folder)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(part, dir_fd=folder)
    finally:
        os.close(descriptor)
