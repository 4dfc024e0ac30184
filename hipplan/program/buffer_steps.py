"""What the steps of buffers take from a plan: flags, files, ranges."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from hipplan.language.model import ByteRange, PinnedBuffer, RegisteredBuffer
from hipplan.program import steps


def registered(
    spec: RegisteredBuffer, size: int, node: int, document: str, common: Mapping[str, Any]
) -> steps.RegisterBuffer:
    """The step of a registered buffer. document: the plan, whose folder its file is relative to."""
    fresh = spec.anonymous
    return steps.RegisterBuffer(
        size=size,
        flags=_set(spec, "portable", "mapped", "read_only"),
        file=str(PurePath(document).parent / spec.file) if spec.file else "",
        bind=spec.bind or "",
        read_only=spec.read_only,
        numa_node=node,
        huge_pages="none" if fresh is None else fresh.huge_pages,
        **common,
    )


def range_of(part: ByteRange | None, whole: int) -> tuple[int, int]:
    """(offset, size) in bytes of a range of a buffer."""
    if part is None:
        return 0, whole
    return part.at, part.size or whole - part.at


def pinned_flags(spec: PinnedBuffer) -> tuple[str, ...]:
    """The flags of hipHostMalloc."""
    coherency = {None: (), True: ("coherent",), False: ("non_coherent",)}[spec.coherent]
    return (*_set(spec, "portable", "mapped", "write_combined", "uncached", "numa_user"), *coherency)


def _set(spec: object, *flags: str) -> tuple[str, ...]:
    """Those of the flags that are set on a buffer."""
    return tuple(flag for flag in flags if getattr(spec, flag))
