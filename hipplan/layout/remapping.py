"""Remap of a live layout: checks that only the driver can answer, before memory moves to the host."""

from __future__ import annotations

from hipplan.errors import ApplyError, Diagnostic
from hipplan.language.host import is_host
from hipplan.layout import update
from hipplan.layout.holding import Holding
from hipplan.layout.sleeping import KEPT_WITH_ITS_RANGE, kept_with_its_range, require_host_memory
from hipplan.layout.state import State
from hipplan.lowering.lowered import lower
from hipplan.program import remake
from hipplan.program.borders import Part
from hipplan.program.difference import Difference
from hipplan.program.sleeping_bytes import plan_name_of


def remap(
    holding: Holding, name: str, *, part: Part | None, device: str | None, keep_bytes: bool, retain: bool
) -> Difference:
    """layout.remap()."""

    def find_change(state: State, _: update.Meet) -> Difference:
        change = remake.remapped(state.program, name, part=part, device=device, keep_bytes=keep_bytes, retain=retain)
        if device is not None and is_host(device):
            require_host_memory(lower(change, state.lowered).lowered)
            if memory := kept_with_its_range(holding, state, change):
                raise _cannot_move(plan_name_of(change.old, memory))
        return change

    return update.change(holding, "remap", find_change)


def _cannot_move(name: str) -> ApplyError:
    """HP440: this HIP would keep the GPU's memory too."""
    why, hint = KEPT_WITH_ITS_RANGE
    return ApplyError(Diagnostic("HP440", f"'{name}' cannot move to the host", why=why, hint=hint))
