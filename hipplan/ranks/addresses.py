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
"""Of all ranks at once."""
FROM_PLAN = 64
"""Addresses that are computed from the plan. Each layout that is closed may use one up: CUDA gives addresses that were
freed to other memory of the process, such as a tensor."""

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

    The first is the plan's. Then each rank says which of the plan's others it has in use; after those that are free
    everywhere (a driver may refuse them, on a processor with few address bits), or where there are none, the drivers
    of the ranks propose free addresses in turn.
    Raises GroupError: no more proposals (HP435), or a rank's message is invalid (HP434).
    """
    whole = max(place.offset + place.size for place in parts.values())
    alignment = max(1, *(place.alignment for place in parts.values()))
    if number >= ATTEMPTS:
        summary = "no addresses are free in all ranks of the node"
        why = f"{ATTEMPTS} addresses for {whole} bytes were tried"
        raise GroupError(Diagnostic("HP435", summary, why=why, hint="remove addresses, or reserve less"))
    starts = [round_up(start, alignment) for start in starts_of(program.plan_of_all)]
    if number > 0:
        in_use = _core.in_use(starts, whole)
        for message in to_all({"in_use": in_use}).values():
            in_use += _numbers(message.get("in_use"))
        starts = [start for n, start in enumerate(starts) if n == 0 or n not in in_use][: ATTEMPTS // 2]
    if number < len(starts):
        base = starts[number]
    else:
        rooms: dict[int, object] = {rank: _room(round_up(whole + alignment, FALLBACK_GRANULARITY), program, runtime)}
        rooms |= {other: message.get("room") for other, message in to_all({"room": rooms[rank]}).items()}
        room = rooms[sorted(rooms)[number % len(rooms)]]
        if not isinstance(room, int) or not 0 < room < 2**63:
            raise cannot_share("a rank found no free addresses")
        base = round_up(room, alignment)
    return {name: base + place.offset for name, place in parts.items()}


def starts_of(plan: str) -> list[int]:
    """Where the ranges of a plan may begin, each once. plan: identifies it."""
    return list(dict.fromkeys(start_for(f"{plan}/{n}") for n in range(FROM_PLAN)))


def _numbers(of_rank: object) -> list[int]:
    if isinstance(of_rank, list) and all(type(n) is int and 0 <= n < FROM_PLAN for n in of_rank):
        return of_rank
    raise cannot_share("a rank sent no list of addresses in use")


def _room(size: int, program: Program, runtime: _core.Runtime) -> int:
    """Where the driver puts a range of `size` bytes. The range is freed again."""
    step = Reserve(name="room", size=size, asked=size, alignment=0, slack=0, address=0, exact=False, origin=None)
    with run(replace(program.nothing, steps=(step,), shared={}, parts={}), runtime, check=False) as layout:
        return layout["room"].address
