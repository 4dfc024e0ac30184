"""Where the bytes of memory are while it sleeps, and until they are needed no more."""

from __future__ import annotations

from dataclasses import dataclass

from hipplan.program.steps import CreatePinnedBuffer, Step

HOST, DROP, FILE = "host", "drop", "file"
"""In pinned memory of the host; nowhere; in a file."""

WHERE = {HOST: "in pinned host memory", DROP: "dropped", FILE: "in a file"}

_PINNED = "#asleep."
"""How the names of the pinned memory begin: as no name of a plan does."""


@dataclass(frozen=True, slots=True)
class Backup:
    """The bytes of one allocation."""

    to: str
    """HOST, DROP or FILE."""
    place: str = ""
    """The pinned memory's name, or the file's path."""
    offset: int = 0
    """Of its first byte in there."""
    size: int = 0
    checked: bool = False
    """The saved bytes have a checksum, which is checked before they are used."""

    def is_at(self, to: str, file: str) -> bool:
        """file: the path, where `to` is FILE."""
        return self.to == to and (to != FILE or self.place == file)


def pinned_name(name: str, device: int, taken: set[str]) -> str:
    """What the pinned memory is called that holds the bytes of something on one device."""
    wanted = f"{_PINNED}{name}.{device}"
    number = 0
    path = wanted
    while path in taken:
        number += 1
        path = f"{wanted}.{number}"
    return path


def is_backup(step: Step) -> bool:
    """Whether a step makes pinned memory for bytes that sleep."""
    return isinstance(step, CreatePinnedBuffer) and step.name.startswith(_PINNED)
