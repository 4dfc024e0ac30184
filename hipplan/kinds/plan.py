"""What the models of all kinds of buffers have, and what hipplan asks each."""

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

from hipplan.language.base import Count, Offset, OfRank, PlanModel, Size

Where = tuple[str | int, ...]
"""A place below the buffer: ("advice", 0, "device")."""


class ByteRange(PlanModel):
    """A part of a buffer."""

    at: Offset = 0
    """The start, in bytes from the start of the buffer."""

    size: Size | None = None
    """The length in bytes. Default: up to the end of the buffer.

    Errors: HP208 past the end.
    """


class Use(NamedTuple):
    """What else of the plan a line of a buffer refers to. The line becomes a driver call of its own."""

    where: Where
    device_key: str = ""
    """The key that names a device or the host; empty: the line has none."""
    device: str | None = None
    stream: str | None = None
    """By the key `stream`."""
    part: ByteRange | None = None
    """By the key `range`."""


class Move(NamedTuple):
    """Bytes that a line moves to a device."""

    to: str
    bytes: int
    where: Where


class Note(NamedTuple):
    """A warning about a line of a buffer."""

    code: str
    summary: str
    where: Where
    why: str
    hint: str


class BufferPlan(PlanModel):
    """What all kinds have. Each also has `kind`, `size` and `device`."""

    on_host: ClassVar[bool] = True
    """Whether it may take memory of the host."""
    for_peers: ClassVar[bool] = False
    """Whether other devices reach it over peer links."""
    has_lines: ClassVar[bool] = False
    """Whether it may have lines that refer to others, move bytes or deserve a warning. Plans have thousands of buffers
    without, and those are not asked."""
    located: ClassVar[tuple[Where, ...]] = ()
    """Where a device or the host is named in it; `*`: each item of a list."""
    streamed: ClassVar[tuple[Where, ...]] = ()
    """Where a stream is named in it."""

    count: Count | None = None
    """How many to make, named name.0, name.1, ... Default: one, without a number.

    Source: ours.
    """

    rank: OfRank | None = None
    """The rank that makes it: a number, or `first_of_node`. Default: every rank makes its own.

    Errors: HP107 in a plan without ranks:.
    Source: ours.
    """

    def uses(self) -> Iterator[Use]:
        """The lines that refer to other objects."""
        return iter(())

    def moves(self) -> Iterator[Move]:
        """The bytes that are on a device after all prefetches."""
        return iter(())

    def notes(self, name: str) -> Iterator[Note]:
        """Warnings, for the buffer of this name."""
        return iter(())

    def bound(self) -> str:
        """The name under which the caller passes its memory; empty: it is not the caller's."""
        return ""

    def planned_size(self) -> int | str:
        """Its bytes; 0: a file or the caller decides; text: the machine does."""
        size: int | str | None = getattr(self, "size", None)
        return size or 0

    def pages(self) -> tuple[Any, Where]:
        """The model with the keys about its pages (numa, numa_node, huge_pages), where it has any, and its place."""
        return self, ()
