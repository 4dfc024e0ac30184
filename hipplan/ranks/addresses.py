"""Addresses that are free in all ranks of a node: one rank proposes, all try, at most eight times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

from hipplan import _core
from hipplan.errors import Diagnostic, GroupError
from hipplan.layout.run import run
from hipplan.program.program import Program
from hipplan.program.steps import Reserve
from hipplan.ranks.mesh import Message

ATTEMPTS = 8

ToAll = Callable[[Message], dict[int, Message]]
"""Sends a message to all ranks of the node; returns theirs."""


def common_base(
    size: int, rank: int, others: Sequence[int], to_all: ToAll, program: Program, runtime: _core.Runtime
) -> int:
    """An address at which `size` bytes are free in every rank. program: what devices it is for.

    What was tried stays reserved until the end, so that each proposal is another one.
    Raises GroupError (HP435): there is none; ApplyError: the driver has none to offer.
    """
    with ExitStack() as tried:

        def reserved(address: int) -> int:
            step = Reserve(
                name="?", size=size, asked=size, alignment=0, slack=0, address=address, exact=False, origin=None
            )
            bare = replace(program.nothing, steps=(step,), shared={}, parts={})
            layout = run(bare, runtime, check=False)
            tried.callback(layout.close)
            return layout["?"].address or 0

        proposers = sorted([rank, *others])
        for number in range(ATTEMPTS):
            proposer = proposers[number % len(proposers)]
            proposed = reserved(0) if proposer == rank else 0
            said = to_all({"address": proposed})
            address = proposed if proposer == rank else _address(said[proposer])
            free = proposer == rank or reserved(address) == address
            if all([free, *(one.get("free") is True for one in to_all({"free": free}).values())]):
                return address
    summary = "no addresses are free in all ranks of the node"
    why = f"{ATTEMPTS} places for {size} bytes were tried"
    raise GroupError(Diagnostic("HP435", summary, why=why, hint="leave addresses out, or reserve less"))


def _address(message: Message) -> int:
    address = message.get("address")
    if not isinstance(address, int) or not 0 < address < 2**64:
        raise ValueError("a rank proposes no address")
    return address
