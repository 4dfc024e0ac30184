"""Addresses for all ranks of a node: the ranks try one proposal after the other, until all have their ranges there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from hipplan import _core
from hipplan.errors import Diagnostic, GroupError
from hipplan.layout.run import run
from hipplan.machines.machine import FALLBACK_GRANULARITY
from hipplan.processes.packets import Message
from hipplan.program.parts import Place
from hipplan.program.program import Program
from hipplan.program.steps import Reserve
from hipplan.program.window import start_for
from hipplan.ranks.words import cannot_share
from hipplan.units import round_up

ATTEMPTS = 8

ToAll = Callable[[Message], dict[int, Message]]
"""Sends a message to all other ranks of the node; returns their messages."""


def proposal(
    number: int,
    parts: Mapping[str, Place],
    rank: int,
    to_all: ToAll,
    program: Program,
    runtime: _core.Runtime,
) -> dict[str, int]:
    """Name -> address, the same in all ranks. parts: name -> place relative to the first one.

    The first half of the proposals is computed from the plan. If those are not free (another layout of the plan, a
    sanitizer, a processor with few address bits), the drivers of the ranks propose free addresses in turn.
    Raises GroupError: no more proposals (HP435), or a rank's proposal is invalid (HP434).
    """
    whole = max(place.offset + place.size for place in parts.values())
    alignment = max(1, *(place.alignment for place in parts.values()))
    if number >= ATTEMPTS:
        summary = "no addresses are free in all ranks of the node"
        why = f"{ATTEMPTS} addresses for {whole} bytes were tried"
        raise GroupError(Diagnostic("HP435", summary, why=why, hint="remove addresses, or reserve less"))
    base = start_for(f"{program.plan_of_all}/{number}")
    if number >= ATTEMPTS // 2:
        rooms: dict[int, object] = {rank: _room(round_up(whole + alignment, FALLBACK_GRANULARITY), program, runtime)}
        rooms |= {other: message.get("room") for other, message in to_all({"room": rooms[rank]}).items()}
        room = rooms[sorted(rooms)[number % len(rooms)]]
        if not isinstance(room, int) or not 0 < room < 2**63:
            raise cannot_share("a rank found no free addresses")
        base = room
    base = round_up(base, alignment)
    return {name: base + place.offset for name, place in parts.items()}


def _room(size: int, program: Program, runtime: _core.Runtime) -> int:
    """Where the driver puts a range of `size` bytes. The range is freed again."""
    step = Reserve(name="room", size=size, asked=size, alignment=0, slack=0, address=0, exact=False, origin=None)
    with run(replace(program.nothing, steps=(step,), shared={}, parts={}), runtime, check=False) as layout:
        return layout["room"].address
