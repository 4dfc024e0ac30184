"""What the pools of a layout take: addresses, memory and tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from hipplan.language.host import is_host
from hipplan.program.program import Program
from hipplan.units import format_size


@dataclass(frozen=True, slots=True)
class PoolUsage:
    """The usage of one pool. All sizes are bytes."""

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


@dataclass(frozen=True, slots=True)
class RegionUsage:
    """The usage of a region that is on the host in part, or that may be."""

    region: str
    chunks: tuple[str, ...]
    """Where each chunk is, in the order of addresses: a device of the plan, or the host."""
    bytes: dict[str, int]
    """The same in bytes."""


class Usage(tuple[PoolUsage, ...]):
    """What layout.usage() returns, all pools: print() shows tables, as_dict() is for JSON."""

    regions: tuple[RegionUsage, ...] = ()
    """The regions that have memory on the host, or that may get some: `overflow: host`."""
    retained: int = 0
    """Bytes of the host that are kept for the next move there."""

    def as_dict(self) -> dict[str, Any]:
        """All pools, the sums by tag, and the regions on the host."""
        regions = [asdict(region) for region in self.regions]
        return {"pools": [asdict(pool) for pool in self], "tags": self.by_tag(), "regions": regions,
                "retained": self.retained}  # fmt: skip

    def by_tag(self) -> dict[str, dict[str, int]]:
        """Tag -> reserved, mapped, used and saved bytes on all devices."""
        sums: dict[str, dict[str, int]] = {}
        for pool in self:
            of_tag = sums.setdefault(pool.tag, dict.fromkeys(_SUMMED, 0))
            for what in _SUMMED:
                of_tag[what] += getattr(pool, what)
        return sums

    def __str__(self) -> str:
        tables = [_table([_HEADS, *map(_row, self)])] * bool(self)
        tables += [_table([("region", "chunks", "bytes"), *map(_region_row, self.regions)])] * bool(self.regions)
        tables += [f"kept for the next move to the host: {format_size(self.retained)}"] * bool(self.retained)
        return "\n\n".join(tables) or "the layout has no pools with a tag"


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(lines)


def regions_of(program: Program) -> tuple[RegionUsage, ...]:
    """The usage of a program's regions that are on the host in part, or may be."""
    out = []
    for name, placed in program.regions.items():
        if placed.region.spec.overflow or any(map(is_host, placed.devices)):
            sums = dict.fromkeys(placed.devices, 0)
            for device, size in placed.chunks:
                sums[device] += size
            out.append(RegionUsage(name, tuple(device for device, _ in placed.chunks), sums))
    return tuple(out)


_SUMMED = ("reserved", "mapped", "used", "saved")
_HEADS = ("tag", "region", "device", "state", *_SUMMED, "blocks")


def _region_row(usage: RegionUsage) -> Sequence[str]:
    """Runs of chunks in one place are one word: gpu.0 x 4, host x 2."""
    runs = [(device, len([*alike])) for device, alike in groupby(usage.chunks)]
    chunks = ", ".join(f"{device} x {count}" for device, count in runs)
    return usage.region, chunks, ", ".join(f"{device} {format_size(size)}" for device, size in usage.bytes.items())


def _row(pool: PoolUsage) -> Sequence[str]:
    sizes = (format_size(getattr(pool, what)) for what in _SUMMED)
    return (pool.tag, pool.region, pool.device, pool.state, *sizes, str(pool.blocks))
