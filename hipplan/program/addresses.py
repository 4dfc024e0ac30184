"""Chooses addresses that do not depend on the process: for locks, and for memory that several processes map."""

from __future__ import annotations

from collections.abc import Mapping

from hipplan.errors import Diagnostic, MachineError
from hipplan.kinds.reservation.live import Reserve
from hipplan.program.program import Program
from hipplan.program.window import GIB, WINDOW, WINDOW_END, start_for
from hipplan.units import round_up

ADDRESSES_END = 1 << 57
"""No processor has addresses of user space beyond this."""


def at_addresses(program: Program, addresses: Mapping[str, int]) -> Program:
    """The program with each of these ranges at its address, and at no other."""
    return program.with_steps(
        {
            number: step.at_address(addresses[step.name])
            for number, step in program.single
            if isinstance(step, Reserve) and step.name in addresses
        }
    )


def addresses_for(program: Program, base: int | None = None) -> dict[str, int]:
    """The address for each reservation. base: of the first one; None: a place in WINDOW, derived from the name.

    Reservations with an exact address of their own keep it. Raises MachineError (HP322) if there is no room.
    """
    wanted = [*program.reservations.values()]
    taken = [(step.address, step.address + step.size) for step in wanted if step.exact]
    start = start_for(program.name) if base is None else base
    out: dict[str, int] = {}
    for step in wanted:
        if step.exact:
            out[step.name] = step.address
            continue
        room = round_up(step.size, GIB) + GIB  # a gap, so that overruns do not hit the next one
        start = round_up(start, max(GIB, step.alignment))
        while clash := next((end for at, end in taken if at < start + room and start < end), 0):
            start = round_up(clash, max(GIB, step.alignment))
        first, end = (WINDOW, WINDOW_END) if base is None else (base, ADDRESSES_END)
        if start + room > end:
            why = f"locked addresses are chosen between {first:#x} and {end:#x}"
            hint = "choose another first address: --address-base"
            raise MachineError(
                Diagnostic("HP322", f"there is no room for '{step.name}'", step.origin, why=why, hint=hint)
            )
        out[step.name] = start
        start += room
    return out
