"""Addresses for all ranks of a node: one place after the other is proposed, until all have their ranges there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from hipplan import _core
from hipplan.errors import Diagnostic, GroupError
from hipplan.layout.run import run
from hipplan.processes.packets import Message
from hipplan.program.parts import STRIDE, Place
from hipplan.program.program import Program
from hipplan.program.steps import Reserve
from hipplan.program.window import start_for
from hipplan.units import round_up

ATTEMPTS = 8

ToAll = Callable[[Message], dict[int, Message]]
"""Sends a message to all ranks of the node; returns theirs."""


def proposal(
    number: int,
    call: int,
    parts: Mapping[str, Place],
    rank: int,
    to_all: ToAll,
    program: Program,
    runtime: _core.Runtime,
) -> dict[str, int]:
    """Name -> address, the same in all ranks. parts: name -> place behind the first one.

    The first half of the proposals is worked out from the plan and the number of the group's call: a place that an
    earlier layout has given back is not always free at once (CUDA). Where those places cannot be had (a sanitizer, a
    processor with few bits of address), the driver of one rank after the other says where it has room.
    Raises GroupError (HP435): there are no more; ValueError: a rank proposes nonsense.
    """
    whole = max(place.offset + place.size for place in parts.values())
    alignment = max(1, *(place.alignment for place in parts.values()))
    if number >= ATTEMPTS:
        summary = "no addresses are free in all ranks of the node"
        why = f"{ATTEMPTS} addresses for {whole} bytes were tried"
        raise GroupError(Diagnostic("HP435", summary, why=why, hint="remove addresses, or reserve less"))
    base = start_for(f"{program.plan_of_all}/{call}/{number}")
    if number >= ATTEMPTS // 2:
        said: dict[int, object] = {rank: _room(round_up(whole + alignment, STRIDE), program, runtime)}
        said |= {other: message.get("room") for other, message in to_all({"room": said[rank]}).items()}
        found = said[sorted(said)[number % len(said)]]
        if not isinstance(found, int) or not 0 < found < 2**63:
            raise ValueError("a rank found no free addresses")
        base = found
    base = round_up(base, alignment)
    return {name: base + place.offset for name, place in parts.items()}


def _room(size: int, program: Program, runtime: _core.Runtime) -> int:
    """Where the driver puts a range of so many bytes, a multiple of STRIDE; it is free again."""
    step = Reserve(name="room", size=size, asked=size, alignment=0, slack=0, address=0, exact=False, origin=None)
    with run(replace(program.nothing, steps=(step,), shared={}, parts={}), runtime, check=False) as layout:
        return layout["room"].address or 0
