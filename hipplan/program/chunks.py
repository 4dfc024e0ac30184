"""The sizes and devices of a region's chunks. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from hipplan.language.model import Region
from hipplan.language.objects import ResolvedRegion
from hipplan.program.on_demand import repeated
from hipplan.program.series import Series
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


Chunks = Sequence[tuple[str, int]]
"""(device, bytes) of each chunk of a region, in the order of addresses."""


def parts_for(needs: Mapping[str, int], chunk: int, step: int, ask: Callable[[int], None]) -> Chunks:
    """Parts sized by the tensors in them, in chunks or in one piece; none is empty."""
    if not chunk:
        ask(len(needs))
        return [(device, round_up(max(need, 1), step)) for device, need in needs.items()]
    counts = {device: -(-max(need, 1) // chunk) for device, need in needs.items()}
    ask(sum(counts.values()))
    return _one_after_the_other(counts.items(), chunk)


def chunks_in(region: ResolvedRegion, size: int, step: int, ask: Callable[[int], None]) -> Chunks:
    """The chunks of a region of `size` bytes."""
    spec, holders = region.spec, region.devices
    if spec.chunk is None:  # one piece on each device, none of them empty
        ask(len(holders))
        share = round_up(-(-size // len(holders)), step)
        return [(device, share) for device in holders]
    chunk = round_up(spec.chunk, step)
    count = -(-size // chunk)
    ask(count)
    if spec.spread == "interleave":
        return repeated([(device, chunk) for device in holders], count)
    whole, more = divmod(count, len(holders))
    return _one_after_the_other(((device, whole + (index < more)) for index, device in enumerate(holders)), chunk)


def _one_after_the_other(counts: Iterable[tuple[str, int]], chunk: int) -> Chunks:
    """So many chunks on each device."""
    parts = [repeated([(device, chunk)], count) for device, count in counts]
    return parts[0] if len(parts) == 1 else Series.joined(parts)
