"""Files of bytes that only this user may open."""

from __future__ import annotations

import contextlib
import os

from hipplan.files.places import NameInFolder, UnsafeFile


class PrivateFile:
    """A file that is kept open: another one with its name is not taken for it, and its bytes stay without a name."""

    def __init__(self, path: str, descriptor: int) -> None:
        """Takes over the descriptor."""
        self.path = path
        self.descriptor = descriptor

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.descriptor)

    @classmethod
    def opened(cls, path: str) -> PrivateFile:
        """The file that has this name now. Raises OSError; UnsafeFile: another user could have put it there."""
        with NameInFolder(path) as place:
            place.require_ours(private=True)
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = cls(path, os.open(place.name, flags, dir_fd=place.folder))
            place.require_ours_open(file.descriptor, private=True)
        return file

    def is_file(self, other: PrivateFile) -> bool:
        """Whether both are one file."""
        return os.path.sameopenfile(self.descriptor, other.descriptor)

    @property
    def size(self) -> int:
        """Bytes."""
        return os.fstat(self.descriptor).st_size

    @property
    def has_its_name(self) -> bool:
        """Whether its path still leads to it."""
        with contextlib.suppress(OSError), NameInFolder(self.path) as place:
            return self._is_at(place)
        return False

    def remove(self) -> None:
        """Removes its name, unless it is gone. Raises OSError; UnsafeFile: another file has the name."""
        with NameInFolder(self.path) as place:
            if self._is_at(place):
                os.unlink(place.name, dir_fd=place.folder)
            elif place.status() is not None:
                raise UnsafeFile("another file has its name", self.path)

    def _is_at(self, place: NameInFolder) -> bool:
        status = place.status()
        return status is not None and os.path.samestat(status, os.fstat(self.descriptor))
