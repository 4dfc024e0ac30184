"""The sizes and devices of a region's chunks. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hipplan.language.model import Region
from hipplan.language.objects import ResolvedRegion
from hipplan.units import round_up


def with_chunk(spec: Region, step: int) -> Region:
    """A region that starts empty with the bytes of a chunk on its machine: no chunk says them."""
    return spec.model_copy(update={"chunk": chunk_of(spec, step)})


def chunk_of(spec: Region, step: int) -> int:
    """The bytes of a chunk of a region that starts empty, as a multiple of step."""
    return round_up(spec.chunk or max(POOL_CHUNK, (spec.range_size or 0) // POOL_CHUNKS_MAX), step)


POOL_CHUNK = 64 << 20
"""Bytes of a chunk of a pool for PyTorch, if the plan does not say them."""
POOL_CHUNKS_MAX = 1024
"""A pool has at most so many chunks then: on AMD each takes a file descriptor."""


def parts_for(needs: Mapping[str, int], chunk: int, step: int, ask: Callable[[int], None]) -> list[tuple[str, int]]:
    """(device, bytes) for parts sized by the tensors in them, in chunks or in one piece; none is empty."""
    if not chunk:
        ask(len(needs))
        return [(device, round_up(max(need, 1), step)) for device, need in needs.items()]
    counts = {device: -(-max(need, 1) // chunk) for device, need in needs.items()}
    ask(sum(counts.values()))
    return [(device, chunk) for device, count in counts.items() for _ in range(count)]


def chunks_in(region: ResolvedRegion, size: int, step: int, ask: Callable[[int], None]) -> list[tuple[str, int]]:
    """(device, bytes) of each chunk of a region of `size` bytes."""
    spec, holders = region.spec, region.devices
    if spec.chunk is None:  # one piece on each device, none of them empty
        ask(len(holders))
        share = round_up(-(-size // len(holders)), step)
        return [(device, share) for device in holders]
    chunk = round_up(spec.chunk, step)
    count = -(-size // chunk)
    ask(count)
    if spec.spread == "interleave":
        return [(holders[number % len(holders)], chunk) for number in range(count)]
    whole, more = divmod(count, len(holders))
    return [(device, chunk) for index, device in enumerate(holders) for _ in range(whole + (index < more))]
