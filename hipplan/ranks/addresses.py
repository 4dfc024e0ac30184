"""Addresses that are free in all ranks of a node: a place is proposed, all try it, at most eight times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from hipplan import _core
from hipplan.errors import Diagnostic, GroupError
from hipplan.layout.run import run
from hipplan.program.program import Program
from hipplan.program.steps import Reserve
from hipplan.program.window import start_for
from hipplan.ranks.mesh import Message

ATTEMPTS = 8

ToAll = Callable[[Message], dict[int, Message]]
"""Sends a message to all ranks of the node; returns theirs."""


def common_base(
    parts: Mapping[str, tuple[int, int]],
    rank: int,
    others: Sequence[int],
    to_all: ToAll,
    program: Program,
    runtime: _core.Runtime,
) -> int:
    """An address behind which all parts can lie in every rank. parts: name -> offset and bytes.

    The first half of the proposals is worked out from the plan alone. Where those places cannot be had (a sanitizer, a
    processor with few bits of address) the driver of one rank after the other proposes one. What was tried stays
    reserved until the end, so that each proposal is another one.
    Raises GroupError (HP435): there is none; ApplyError: the driver has none to offer.
    """
    with ExitStack() as tried:

        def reserved(places: Mapping[str, tuple[int, int]], until: ExitStack = tried) -> list[int]:
            """Where the driver puts ranges. places: name -> address, 0 for any, and bytes."""
            made = tuple(
                Reserve(name=name, size=size, asked=size, alignment=0, slack=0, address=at, exact=False, origin=None)
                for name, (at, size) in places.items()
            )
            layout = run(replace(program.nothing, steps=made, shared={}, parts={}), runtime, check=False)
            until.callback(layout.close)
            return [layout[name].address or 0 for name in places]

        whole = max(at + size for at, size in parts.values())
        ranks = sorted([rank, *others])
        for number in range(ATTEMPTS):
            base = start_for(f"{program.plan_of_all}/{number}")
            if number >= ATTEMPTS // 2:
                proposer = ranks[number % len(ranks)]
                mine = 0
                if proposer == rank:
                    with ExitStack() as asked:  # it is to be free again when the parts are tried there
                        (mine,) = reserved({"all parts": (0, whole)}, until=asked)
                said = to_all({"address": mine})
                base = mine or _address(said[proposer])
            wanted = {name: (base + at, size) for name, (at, size) in parts.items()}
            free = reserved(wanted) == [at for at, _ in wanted.values()]
            if all([free, *(one.get("free") is True for one in to_all({"free": free}).values())]):
                return base
    summary = "no addresses are free in all ranks of the node"
    why = f"{ATTEMPTS} places for {whole} bytes were tried"
    raise GroupError(Diagnostic("HP435", summary, why=why, hint="leave addresses out, or reserve less"))


def _address(message: Message) -> int:
    address = message.get("address")
    if not isinstance(address, int) or not 0 < address < 2**63:
        raise ValueError("a rank proposes no address")
    return address
