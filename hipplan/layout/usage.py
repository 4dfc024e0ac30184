"""What the pools of a layout take: addresses, memory and tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hipplan.units import format_size


@dataclass(frozen=True, slots=True)
class PoolUsage:
    """Of one pool. All sizes are bytes."""

    region: str
    tag: str
    device: str
    state: str
    """open, stopped (another thread changes it), host or drop (asleep: where its bytes are), closed."""
    reserved: int
    """Addresses."""
    mapped: int
    """Memory of the device."""
    used: int
    """What PyTorch has: tensors, and blocks in its cache."""
    saved: int
    """Host memory with copies of its bytes."""
    chunks: int
    blocks: int
    """What PyTorch has allocated, in numbers."""


class Usage(tuple[PoolUsage, ...]):
    """What layout.usage() returns: print() shows a table, as_dict() is for JSON."""

    __slots__ = ()

    def as_dict(self) -> dict[str, Any]:
        """All pools, and the sums by tag."""
        return {"pools": [asdict(pool) for pool in self], "tags": self.by_tag()}

    def by_tag(self) -> dict[str, dict[str, int]]:
        """Tag -> reserved, mapped, used and saved bytes on all devices."""
        sums: dict[str, dict[str, int]] = {}
        for pool in self:
            of_tag = sums.setdefault(pool.tag, dict.fromkeys(_SUMMED, 0))
            for what in _SUMMED:
                of_tag[what] += getattr(pool, what)
        return sums

    def __str__(self) -> str:
        if not self:
            return "the layout has no pools with a tag"
        rows = [_HEADS, *(_row(pool) for pool in self)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
        lines = ("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows)
        return "\n".join(lines)


_SUMMED = ("reserved", "mapped", "used", "saved")
_HEADS = ("tag", "region", "device", "state", *_SUMMED, "blocks")


def _row(pool: PoolUsage) -> Sequence[str]:
    sizes = (format_size(getattr(pool, what)) for what in _SUMMED)
    return (pool.tag, pool.region, pool.device, pool.state, *sizes, str(pool.blocks))
