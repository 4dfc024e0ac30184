"""The messages between the ranks of a node within one agreement: their offers, addresses, and descriptors."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn, Protocol

from pydantic import TypeAdapter, ValidationError

from hipplan import _core
from hipplan.errors import ApplyError, reason_of
from hipplan.kinds.allocation.live import ImportAllocation
from hipplan.language.rank import Rank
from hipplan.processes.connections import Late
from hipplan.processes.packets import Gone, Message, Received, TooLong
from hipplan.program.difference import Difference
from hipplan.program.parts import Offer, moved, offer_of, placed_already, symmetric, with_parts
from hipplan.program.program import Program
from hipplan.program.regions import memory_of
from hipplan.ranks.addresses import proposal
from hipplan.ranks.links import LinkMaker, Links
from hipplan.ranks.words import cannot_share

_OFFER = TypeAdapter(Offer)
_REASON_MAX = 500
"""Characters of another rank's reason that are shown."""


class Call(Protocol):
    """The call of a group that a meeting belongs to."""

    rank: Rank
    neighbours: Sequence[int]

    def deadline(self) -> float:
        """The deadline of a wait that begins now."""

    def is_over(self) -> bool:
        """Whether the call has ended without this rank. May raise, to end a wait."""

    def ended_by_others(self, missing: Sequence[int], why: str = "") -> NoReturn:
        """Raises GroupError: why it ended."""


class Meeting:
    """The ranks of one node, for one call of a group."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._link_maker: LinkMaker | None = None
        self._links: Links | None = None
        self._offered: set[str] = set()
        self._proposed: Callable[[int, tuple[str, ...]], dict[str, int]] | None = None
        """(number of the attempt, why the one before failed) -> the proposed addresses of ranges, by name; None: there
        are none to place."""
        self._why_not: tuple[str, ...] = ()
        self._to_place: Container[str] = ()
        self._attempt = 0

    def begin(self, program: Program | None) -> dict[str, str]:
        """Opens a socket for the ranks that share memory with this one. Returns what they need to connect."""
        if program is None or not program.shared or not self._call.neighbours:
            return {}
        with self._with_others():
            self._link_maker = LinkMaker()
        return {"socket": self._link_maker.name, "nonce": self._link_maker.nonce}

    @property
    def begun(self) -> bool:
        """Whether this rank shares memory with others."""
        return self._link_maker is not None

    def joined(
        self,
        messages_of_all: Sequence[Mapping[str, Any]],
        old: Program | None,
        program: Program,
        runtime: _core.Runtime,
    ) -> Program:
        """The program with the parts of the others. old: the layout's program, if any.

        Raises GroupError, MachineError.
        """
        mine = offer_of(program)
        self._offered = {memory_of(part.region, n) for part in mine.parts for n, _ in enumerate(part.chunks())}
        self._connect(messages_of_all)
        replies = self._to_all({"offer": _OFFER.dump_python(mine, mode="json")})
        offers = [_offer(replies[rank], rank) for rank in sorted(replies)]
        everything = sorted([mine, *offers], key=lambda offer: offer.rank)
        places, missing = placed_already(old, program, everything), symmetric(program, everything)
        missing = {name: place for name, place in missing.items() if name not in places}
        if missing:
            self._to_place = missing
            self._proposed = partial(
                proposal,
                parts=missing,
                rank=self._call.rank.rank,
                to_all=self._to_all,
                program=program,
                runtime=runtime,
            )
            places |= self._proposed(self._attempt, self._why_not)
        return with_parts(program, offers, places)

    @property
    def to_place(self) -> Container[str]:
        """See Together."""
        return self._to_place

    def all_placed(self, taken: ApplyError | None) -> bool:
        """See Together.all_placed()."""
        if self._proposed is None or self._links is None:
            return taken is None
        why_not = f"{taken.diagnostics[0].summary}: {taken.diagnostics[0].why}" if taken else ""
        reasons = {self._call.rank.rank: why_not}
        for rank, message in self._to_all({"why_not": why_not[:_REASON_MAX]}).items():
            reason = message.get("why_not")
            reasons[rank] = reason[:_REASON_MAX] if isinstance(reason, str) else "it does not say whether it has them"
        self._why_not = tuple(f"rank {rank}: {reasons[rank]}" for rank in sorted(reasons) if reasons[rank])
        return not self._why_not

    def at_other_addresses(self, change: Difference) -> Difference:
        """See Together.at_other_addresses()."""
        assert self._proposed is not None
        self._attempt += 1
        return moved(change, self._proposed(self._attempt, self._why_not))

    def exchange(self, imports: Sequence[ImportAllocation], share: Callable[[str], int]) -> dict[str, int]:
        """See Agreement.exchange()."""
        if self._links is None:
            return {}
        shared: dict[str, int] = {}
        received: dict[int, Received] = {}
        try:
            wanted = {rank: [step for step in imports if step.rank == rank] for rank in self._links.ranks}
            wants = {rank: {"wants": [step.bind for step in imports]} for rank, imports in wanted.items()}
            asked = {rank: self._shared_names(message) for rank, message in self._send(wants).items()}
            for name in dict.fromkeys(name for names in asked.values() for name in names):
                shared[name] = share(name)
            outgoing = {rank: [shared[name] for name in names] for rank, names in asked.items()}
            received = self._exchange({rank: {} for rank in outgoing}, outgoing)
            if any(len(received[rank].descriptors) != len(imports) for rank, imports in wanted.items()):
                raise cannot_share("a rank sent other memory than requested")
            descriptors = {
                step.name: descriptor
                for rank, imports in wanted.items()
                for step, descriptor in zip(imports, received[rank].descriptors, strict=True)
            }
            received.clear()  # now the caller owns them
            return descriptors
        finally:
            for message in received.values():
                message.close()
            for descriptor in shared.values():
                os.close(descriptor)

    def take_links(self) -> Links | None:
        """The connections, to be kept by the caller."""
        links, self._links = self._links, None
        return links

    def close(self) -> None:
        if self._link_maker is not None:
            self._link_maker.close()
        if self._links is not None:
            self._links.close()

    def _connect(self, messages_of_all: Sequence[Mapping[str, Any]]) -> None:
        sockets = {rank: _socket_of(messages_of_all[rank], rank) for rank in self._call.neighbours}
        assert self._link_maker is not None
        with self._with_others():
            call = self._call
            self._links = self._link_maker.links(call.rank.rank, sockets, call.deadline(), call.is_over)

    def _shared_names(self, message: Message) -> list[str]:
        """The allocations of this rank that another one requests."""
        names = message.get("wants")
        if isinstance(names, list) and all(isinstance(name, str) and name in self._offered for name in names):
            return names
        raise cannot_share("a rank requested memory that is not shared")

    def _to_all(self, message: Message) -> dict[int, Message]:
        assert self._links is not None
        return self._send(dict.fromkeys(self._links.ranks, message))

    def _send(self, messages: Mapping[int, Message]) -> dict[int, Message]:
        received = self._exchange(messages, {})
        for message in received.values():
            message.close()  # closes descriptors, which were not requested
        return {rank: message.message for rank, message in received.items()}

    def _exchange(
        self, messages: Mapping[int, Message], descriptors: Mapping[int, Sequence[int]]
    ) -> dict[int, Received]:
        assert self._links is not None
        with self._with_others():
            return self._links.exchange(messages, self._call.deadline(), self._call.is_over, descriptors)

    @contextmanager
    def _with_others(self) -> Iterator[None]:
        """Raises GroupError for what goes wrong between the ranks. Only messages are exchanged within it: any other
        error is a bug of this rank, and is reported as one."""
        try:
            yield
        except Late as late:
            self._call.ended_by_others(late.missing)
        except Gone as gone:
            self._call.ended_by_others([gone.peer], f"rank {gone.peer}: {gone}")
        except TooLong as error:
            raise cannot_share(str(error)) from None
        except OSError as error:
            raise cannot_share(f"descriptors cannot be sent: {reason_of(error)}") from None


def _socket_of(message: Mapping[str, Any], rank: int) -> tuple[str, str]:
    """The name and nonce of the socket on which a rank listens. Raises GroupError."""
    name, nonce = message.get("socket"), message.get("nonce")
    if isinstance(name, str) and isinstance(nonce, str) and (name + nonce).isascii():
        return name, nonce
    raise cannot_share(f"rank {rank} did not send where it listens")


def _offer(message: Message, rank: int) -> Offer:
    """What a rank offers. Raises GroupError."""
    try:
        offer = _OFFER.validate_python(message.get("offer"), strict=False)
    except ValidationError as error:
        raise cannot_share(f"rank {rank} sent an invalid offer: {error}") from None
    if offer.rank != rank:
        raise cannot_share("a rank sent a message in the name of another")
    return offer
