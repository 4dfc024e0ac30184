"""What a picture shows, before it has places: ribbons of addresses with boxes on them, devices, and columns of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

CAME, CHANGED, WENT, STAYED = "+", "~", "-", "="
"""Signs of a difference, as `hipplan preview --from` has them."""


class Box(NamedTuple):
    """One piece of memory, or what lies in it."""

    start: int
    end: int
    look: str
    """Classes of the style sheet."""
    label: str
    title: str
    """Everything about it, a fact a line; the first is its name."""


@dataclass(frozen=True, slots=True)
class Track:
    """Boxes side by side."""

    kind: str
    """memory, tensors or access."""
    boxes: tuple[Box, ...]
    name: str = ""
    """At its left."""


class Chip(NamedTuple):
    """A word beside the name of a ribbon."""

    text: str
    look: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ribbon:
    """A range of addresses, or things without one side by side."""

    key: tuple[str, str]
    """What it has in common with its like in other columns."""
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
    """On one row: another one that is the same is drawn at its full height, or nothing of it changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU, or the memory of the host."""

    name: str
    """The plan's; empty of one that the plan does not use."""
    what: str
    memory: int | None
    """Bytes; None where nobody knows."""
    boxes: tuple[Box, ...]
    """What is taken of it, from 0 on."""
    look: str
    title: str
    ordinal: int = -1
    numa_node: int | None = None


@dataclass(frozen=True, slots=True)
class Wire:
    """Devices that reach each other."""

    sources: tuple[int, ...]
    targets: tuple[int, ...]
    """Ordinals. The same as sources: each reaches each."""
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
    """What is not drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The whole picture."""

    title: str
    facts: tuple[str, ...]
    columns: tuple[Column, ...]
    legend: tuple[tuple[str, str], ...]
    """(look, words)."""
    notes: tuple[str, ...] = ()
