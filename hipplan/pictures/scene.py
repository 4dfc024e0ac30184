"""The contents of a picture without positions: ribbons of addresses with boxes, devices, and columns of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

CAME, CHANGED, RECREATED, WENT, STAYED = "+", "~", "-/+", "-", "="
"""Signs of a difference, as in `hipplan preview --from`."""


class Box(NamedTuple):
    """One piece of memory, or an object in it."""

    start: int
    end: int
    look: str
    """Classes of the style sheet."""
    label: str
    title: str
    """The tooltip: one fact on each line, the name first."""


@dataclass(frozen=True, slots=True)
class Track:
    """Boxes side by side."""

    kind: str
    """memory, tensors, advice or access."""
    boxes: tuple[Box, ...]
    name: str = ""
    """The text at its left."""


class Chip(NamedTuple):
    """A word beside the name of a ribbon."""

    text: str
    look: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ribbon:
    """A range of addresses, or a row of objects without one."""

    key: tuple[str, str]
    """Equal for the corresponding ribbons of other columns."""
    name: str
    kind: str
    facts: str
    """A few words about it."""
    size: int
    """Bytes from its start to its end."""
    tracks: tuple[Track, ...]
    chips: tuple[Chip, ...] = ()
    has_addresses: bool = True
    flat: bool = False
    """On one row, because an equal ribbon is drawn at its full height, or because nothing in it changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU, or the memory of the host."""

    name: str
    """The plan's name; empty for a device that the plan does not use."""
    what: str
    memory: int | None
    """Bytes; None if unknown."""
    boxes: tuple[Box, ...]
    """The memory taken, from 0 on."""
    look: str
    title: str
    ordinal: int = -1
    numa_node: int | None = None


@dataclass(frozen=True, slots=True)
class Wire:
    """A link or access between devices."""

    sources: tuple[int, ...]
    targets: tuple[int, ...]
    """Ordinals. If equal to sources: all reach all."""
    look: str
    label: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One program."""

    title: str
    """Empty if it is the only one."""
    node: str = ""
    devices: tuple[Device, ...]
    host: Device | None
    wires: tuple[Wire, ...] = ()
    ribbons: Mapping[tuple[str, str], Ribbon] = field(default_factory=dict)
    more: str = ""
    """A text about what is not drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The whole picture."""

    title: str
    facts: tuple[str, ...]
    columns: tuple[Column, ...]
    legend: tuple[tuple[str, str], ...]
    """(look, words)."""
    notes: tuple[str, ...] = ()
