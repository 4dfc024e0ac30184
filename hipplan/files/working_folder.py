"""The folder in which relative paths begin, also once the process has gone to another one."""

from __future__ import annotations

import os
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder, which may be renamed."""

    path: str = field(compare=False)
    device: int
    inode: int

    def path_from_here(self, file: str) -> str:
        """The path of a file whose path begins in this folder: the same while it is the working folder."""
        return file if working_folder() == self else os.path.join(self.path, file)  # noqa: PTH118


def working_folder() -> Folder | None:
    """Returns that of the process; None if it was removed."""
    try:
        status = os.stat(".")  # noqa: PTH116
        return Folder(os.getcwd(), status.st_dev, status.st_ino)  # noqa: PTH109
    except FileNotFoundError:
        return None
