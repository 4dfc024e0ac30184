"""Backups: where the bytes of sleeping memory are kept."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from hipplan.program.steps import CreatePinnedBuffer, Step

HOST, DROP, FILE, MAPPED = "host", "drop", "file", "mapped"
"""In pinned memory of the host; not kept at all; in a file; on the host at the same addresses, without a copy."""

WHERE = {
    HOST: "in pinned host memory",
    DROP: "dropped",
    FILE: "in a file",
    MAPPED: "on the host, still mapped",
}

_PINNED = "#asleep."
"""Prefix of the names of the pinned memory. No name in a plan begins so."""


@dataclass(frozen=True, slots=True)
class Backup:
    """The bytes of one allocation."""

    to: str
    """HOST, DROP or FILE."""
    place: str = ""
    """The pinned memory's name, or the file's path."""
    offset: int = 0
    """Of the first byte in that memory or file."""
    size: int = 0
    file_size: int = 0
    """Bytes of the whole file, which may hold other allocations too."""
    checked: bool = False
    """The saved bytes have a checksum, which is checked before they are used."""

    def is_at(self, to: str, file: str) -> bool:
        """file: the path, where `to` is FILE."""
        return self.to == to and (to != FILE or self.place == file)


def pinned_name(name: str, device: int, taken: Container[str]) -> str:
    """A free name for pinned memory that holds the bytes of `name` on one device."""
    wanted = f"{_PINNED}{name}.{device}"
    number = 0
    path = wanted
    while path in taken:
        number += 1
        path = f"{wanted}.{number}"
    return path


def is_backup(step: Step) -> bool:
    """Whether a step makes pinned memory for a backup."""
    return isinstance(step, CreatePinnedBuffer) and step.name.startswith(_PINNED)
