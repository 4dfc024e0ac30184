"""Pools for PyTorch: regions with a tag, whose memory is no part of a program."""

from __future__ import annotations

from collections.abc import Iterable

from hipplan.language.objects import ResolvedRegion
from hipplan.machines.machine import FALLBACK_GRANULARITY
from hipplan.program.chunks import chunk_of
from hipplan.program.program import Program


def tag_of(program: Program, region: str) -> str:
    """The tag of a region; empty if it is no pool."""
    placed = program.regions.get(region)
    torch = placed.region.spec.torch if placed is not None else None
    return "" if torch is None else torch.tag


def tagged(program: Program, name: str) -> tuple[str, ...]:
    """The pools that a name means: the region of this name, or all regions with this tag."""
    if not name:
        return ()  # what is no pool has this tag
    if tag_of(program, name):
        return (name,)
    return tuple(region for region in program.regions if tag_of(program, region) == name)


def pools_in(program: Program) -> tuple[str, ...]:
    """All regions whose memory is a pool."""
    return tuple(region for region in program.regions if tag_of(program, region))


def chunks_of_pools(regions: Iterable[ResolvedRegion]) -> int:
    """The most chunks that all pools can have: no chunk is smaller than the plan says."""
    specs = (region.spec for region in regions if region.spec.torch is not None)
    return sum((spec.range_size or 0) // chunk_of(spec, FALLBACK_GRANULARITY) for spec in specs)
