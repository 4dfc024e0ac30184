"""Checks that at most one object takes what is left of a device (HP107)."""

from __future__ import annotations

from collections.abc import Mapping

from hipplan.language.base import FILL
from hipplan.language.objects import BuffersByName, ResolvedRegion
from hipplan.language.resolve.names import Names


def check_fills(regions: Mapping[str, ResolvedRegion], buffers: BuffersByName, names: Names) -> None:
    """HP107: two regions or buffers with `size: fill` on one device."""
    filling = [(name, region.devices, region.path) for name, region in regions.items() if region.spec.size == FILL]
    for line in buffers.lines:
        if line.first.spec.size == FILL:
            filling += [(name, (line.first.device,), line.first.path) for name in line.names]
    first: dict[str, str] = {}
    for name, devices, path in filling:
        taken = next((device for device in devices if first.setdefault(device, name) != name), None)
        if taken is not None:
            summary = f"'{first[taken]}' and '{name}' both fill {taken}"
            hint = "give all but one of them a share of the memory, such as size: 30%, or bytes"
            names.report("HP107", summary, (*path, "size"), why="each takes all that is left", hint=hint)
