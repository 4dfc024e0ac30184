"""One object of a program as people and reports see it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One object of a layout as a user sees it."""

    name: str
    kind: str
    """allocation, reservation, mapping, region, tensor, device, pinned, registered, managed, stream or peer."""
    device: str
    """The plan's name for where it is; `host`, or empty where that means nothing."""
    asked: int = 0
    """Bytes the plan asked for."""
    size: int = 0
    """Bytes it takes: asked, padded."""
    access: tuple[tuple[str, str], ...] = ()
    """(device name, right) of a mapping, region or tensor."""
    inside: str = ""
    """The reservation a mapping lies in, the region a tensor lies in."""
    offset: int = 0
    """Bytes from the start of `inside`."""
    memory: str = ""
    """The allocation behind a mapping."""
    read_only: bool = False
    """Nobody may write it: a file registered read-only."""
    imported: bool = False
    """Somebody else's allocation: its memory is in use already."""
    dtype: str = ""
    """Of a tensor: its name in hipplan.files.dtypes."""
    shape: tuple[int, ...] = ()
    """Of a tensor."""
    held_by: tuple[tuple[str, int], ...] = ()
    """(device, bytes) of a region or tensor over several devices."""

    @property
    def waste(self) -> int:
        """Bytes that are only padding."""
        return self.size - self.asked
