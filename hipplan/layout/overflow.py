"""Growth that goes on on the host where a device is full: `overflow: host` of a region."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from hipplan.errors import ApplyError
from hipplan.layout import update
from hipplan.layout.holding import Holding
from hipplan.layout.sleeping import asked, require_host_memory
from hipplan.layout.state import State
from hipplan.lowering.lowered import lower
from hipplan.program import patterns, resize
from hipplan.program.difference import Difference, difference
from hipplan.program.program import Program
from hipplan.program.resize import Size, require

_OUT_OF_MEMORY = 2


def overflows(program: Program, name: str) -> bool:
    """Whether a name or pattern means a region that overflows to the host. Raises ApplyError (HP420)."""
    regions = program.regions
    if not any(region.region.spec.overflow for region in regions.values()):
        return False
    meant = patterns.chosen(program, [name], "region", "reservation")
    return any(one in regions and regions[one].region.spec.overflow for one in meant)


def grow(holding: Holding, name: str, by: Size | None, to: Size | None) -> Difference:
    """layout.grow() of such regions. What the driver says is free decides; if a device has less in truth, all of the
    new memory is on the host."""
    free = {
        device: asked(partial(holding.state.runtime.memory_info, ordinal), device)[0]
        for device, ordinal in holding.state.program.devices.items()
    }
    try:
        return _grown(holding, name, by, to, free)
    except ApplyError as error:
        is_full = (error.call, error.code) == ("hipMemCreate", _OUT_OF_MEMORY)
        if not is_full or error.leaks or error.not_as_it_was or holding.ranks is not None:
            raise
    return _grown(holding, name, by, to, {})


def _grown(holding: Holding, name: str, by: Size | None, to: Size | None, free: Mapping[str, int]) -> Difference:
    def find_change(state: State, meet: update.Meet) -> Difference:
        program = state.program
        for one in patterns.chosen(program, [name], "region"):
            require(program, one, "region")
            program = resize.grown(program, one, by=by, to=to, free=free)
        change = difference(state.program, meet(program))
        require_host_memory(lower(change, state.lowered).lowered)
        return change

    return update.change(holding, "grow", find_change)
