"""Addresses for all ranks of a node: the ranks try one proposal after the other, until all have their ranges there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from hipplan import _core
from hipplan.errors import Diagnostic, GroupError
from hipplan.layout.options import Options
from hipplan.layout.run import run
from hipplan.machines.machine import FALLBACK_GRANULARITY
from hipplan.processes.packets import Message
from hipplan.program.imported import range_for
from hipplan.program.parts import SymmetricPlace
from hipplan.program.program import Program
from hipplan.program.window import STEP, start_for
from hipplan.ranks.words import cannot_share
from hipplan.units import round_up

ATTEMPTS = 16
"""How many proposals all ranks try."""
FROM_PLAN = 64
"""Addresses that are computed from the plan. Each layout that is closed may use one up: CUDA gives addresses that were
freed to other memory of the process, such as a tensor."""
ROOMS = 4
"""Addresses that the driver of each rank proposes."""

ToAll = Callable[[Message], dict[int, Message]]
"""Sends a message to all other ranks of the node; returns their messages."""


def proposal(
    number: int,
    why_not: tuple[str, ...],
    parts: Mapping[str, SymmetricPlace],
    rank: int,
    to_all: ToAll,
    program: Program,
    runtime: _core.Runtime,
) -> dict[str, int]:
    """Name -> address, the same in all ranks. parts: name -> place relative to the first one. why_not: which ranks did
    not have the proposal before, and why.

    The first is the plan's. The others are those that no rank has in use: of the plan's, then (a driver may refuse
    these, on a processor with few address bits) of those that the drivers of the ranks propose.
    Raises GroupError: no more proposals (HP435), or a rank's message is invalid (HP434).
    """
    whole = max(place.offset + place.size for place in parts.values())
    alignment = max(STEP, *(place.alignment for place in parts.values()))
    first, *others = (round_up(start, alignment) for start in starts_of(program.plan_of_all))
    bases = [first]
    if number > 0:
        bases += _free_in_all(others, whole, to_all)[: ATTEMPTS // 2]
    if number >= len(bases):
        mine = _rooms(round_up(whole + alignment, FALLBACK_GRANULARITY), program, runtime)
        rooms = {other: _addresses(message.get("rooms")) for other, message in to_all({"rooms": mine}).items()}
        rooms[rank] = mine
        in_turn = chain.from_iterable(zip(*(rooms[each] for each in sorted(rooms)), strict=True))
        bases += _free_in_all([round_up(room, alignment) for room in in_turn], whole, to_all)
    if number >= min(len(bases), ATTEMPTS):
        summary = "no addresses are free in all ranks of the node"
        why = f"{number} addresses for {whole} bytes were tried"
        notes = tuple(f"the last: {reason}" for reason in why_not)
        raise GroupError(Diagnostic("HP435", summary, why=why, hint="remove addresses, or reserve less", notes=notes))
    return {name: bases[number] + place.offset for name, place in parts.items()}


def starts_of(plan: str) -> list[int]:
    """Where the ranges of a plan may begin, each once. plan: identifies it."""
    return list(dict.fromkeys(start_for(f"{plan}/{n}") for n in range(FROM_PLAN)))


def _free_in_all(bases: Sequence[int], size: int, to_all: ToAll) -> list[int]:
    """Returns the addresses, of those that all ranks have, where no rank has any of `size` bytes in use."""
    in_use = set(_core.in_use(bases, size))
    for message in to_all({"in_use": sorted(in_use)}).values():
        numbers = message.get("in_use")
        if not (isinstance(numbers, list) and all(type(n) is int for n in numbers)):
            raise cannot_share("a rank does not say which addresses it has in use")
        in_use.update(numbers)
    return [base for number, base in enumerate(bases) if number not in in_use]


def _addresses(rooms: object) -> list[int]:
    if isinstance(rooms, list) and len(rooms) == ROOMS and all(type(n) is int and 0 < n < 2**62 for n in rooms):
        return rooms
    raise cannot_share("a rank found no free addresses")


def _rooms(size: int, program: Program, runtime: _core.Runtime) -> list[int]:
    """Where the driver puts ranges of `size` bytes, beside each other. They are freed again."""
    steps = tuple(range_for(f"room{n}", size) for n in range(ROOMS))
    with run(replace(program.nothing, steps=steps, shared={}, parts={}), runtime, Options(verify=False)) as layout:
        return [layout[step.name].address for step in steps]
