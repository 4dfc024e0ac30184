"""Growth that goes on on the host where a device is full: `overflow: host` of a region."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from hipplan.errors import ApplyError
from hipplan.layout.engine import carry_out
from hipplan.layout.holding import Holding
from hipplan.layout.questions import asked
from hipplan.layout.verbs import Grow
from hipplan.program import patterns
from hipplan.program.difference import Difference
from hipplan.program.program import Program
from hipplan.program.resources import RANGES

_OUT_OF_MEMORY = 2


def overflows(program: Program, name: str) -> bool:
    """Whether a name or pattern means a region that overflows to the host. Raises ApplyError (HP420)."""
    regions = program.regions
    if not any(region.region.spec.overflow for region in regions.values()):
        return False
    meant = patterns.chosen(program, [name], *RANGES)
    return any(regions[range_].region.spec.overflow for range_ in meant if range_ in regions)


def grow(holding: Holding, wanted: Grow) -> Difference:
    """layout.grow() of such regions. What the driver says is free decides; if a device has less in truth, all of the
    new memory is on the host."""
    free = {
        device: asked(partial(holding.state.runtime.memory_info, ordinal), device)[0]
        for device, ordinal in holding.state.program.devices.items()
    }
    try:
        return carry_out(holding, replace(wanted, free=free))
    except ApplyError as error:
        is_full = (error.call, error.code) == ("hipMemCreate", _OUT_OF_MEMORY)
        if not is_full or error.leaks or error.not_as_it_was or holding.ranks is not None:
            raise
    return carry_out(holding, replace(wanted, free={}))
