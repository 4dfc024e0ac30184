"""The sources of the doctor's facts: the kernel's files, the environment, the limits of a process."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

MOST_BYTES = 2**20
"""At most so many bytes are read from a file: the kernel's are short."""

_LIMITS = {
    "open_files": resource.RLIMIT_NOFILE,
    "locked_memory": resource.RLIMIT_MEMLOCK,
    "addresses": resource.RLIMIT_AS,
    "file_size": resource.RLIMIT_FSIZE,
}

Limit = int | None
"""Bytes or a count; None: unlimited."""


@dataclass(frozen=True)
class System:
    """A machine as a process sees it. root: the folder that stands for /."""

    root: Path
    environ: Mapping[str, str]
    limits: Mapping[str, tuple[Limit, Limit]]
    """Name -> (soft, hard)."""

    @staticmethod
    def here() -> System:
        """This machine. In tests HIPPLAN_ROOT names a folder with other files of the kernel."""
        limits = {name: tuple(map(_limit, resource.getrlimit(what))) for name, what in _LIMITS.items()}
        return System(Path(os.environ.get("HIPPLAN_ROOT") or "/"), os.environ, limits)  # type: ignore[arg-type]

    def path(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def text(self, path: str) -> str:
        """The stripped text of a file of the kernel; empty if it cannot be read."""
        try:
            with self.path(path).open("rb") as file:
                return file.read(MOST_BYTES).decode(errors="replace").strip()
        except OSError:
            return ""

    def number(self, path: str) -> int | None:
        try:
            return int(self.text(path))
        except ValueError:
            return None

    def matches(self, folder: str, pattern: str) -> list[Path]:
        """The files that match a pattern, sorted."""
        try:
            return sorted(self.path(folder).glob(pattern))
        except OSError:
            return []

    def may_open(self, path: str) -> bool:
        return os.access(self.path(path), os.R_OK | os.W_OK)

    def set_variables(self, names: Iterator[str] | tuple[str, ...]) -> dict[str, str]:
        return {name: self.environ[name] for name in names if name in self.environ}


def _limit(value: int) -> Limit:
    return None if value == resource.RLIM_INFINITY else value
