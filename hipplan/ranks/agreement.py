"""How ranks agree: the same three rounds on success and on failure, each with a deadline.

hello: every rank sends its number and node. plans: every rank has compiled its plan. vote: every rank has made, mapped,
filled and read back its own objects. Between the last two the ranks of a node send each other descriptors of their
memory, if the plan needs it (meeting.py). A round ends with one value that is written once and read by all: the
messages of all ranks, written by rank 0, or the failure, written by the rank that fails first or has waited too long.
So all ranks commit, or none does, as long as that value can be read.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import secrets
import time
from collections.abc import Callable, Container, Iterator, Sequence
from typing import NoReturn, TypeVar

from hipplan import __version__, _core
from hipplan.errors import ApplyError, Diagnostic, GroupError, GroupInDoubt
from hipplan.files import strict_json
from hipplan.kinds.allocation.live import ImportAllocation
from hipplan.language.rank import Rank
from hipplan.plain import seconds
from hipplan.processes.connections import Look, never
from hipplan.program.difference import Difference
from hipplan.program.program import Program
from hipplan.ranks.groups import Group
from hipplan.ranks.links import Links
from hipplan.ranks.meeting import Meeting
from hipplan.ranks.node import neighbours, node_id, rank_of
from hipplan.ranks.stores import StoreLost
from hipplan.ranks.words import RankMessage, doubt, failure, failure_message, silence, unusable

log = logging.getLogger("hipplan")

SLACK_S = 1.0
"""How much longer than rank 0 the others wait, so that only one rank ends a failed round; and for how much longer a
request to a store that does not answer is repeated."""
_AGAIN_S = 0.05
_HELLO, _PLANS, _VOTE, _OVER = "hello", "plans", "vote", ""
_NEXT = {_HELLO: _PLANS, _PLANS: _VOTE, _VOTE: _OVER}

_Answer = TypeVar("_Answer")


class LayoutRanks:
    """A group whose ranks apply a plan, and change its layouts, together."""

    def __init__(self, group: Group, timeout_s: float) -> None:
        """timeout_s: how long a rank that is ready waits for the others, in each round.

        Raises TypeError, ValueError.
        """
        if not isinstance(group, Group):
            raise TypeError(f"group must be from hipplan.group(), not {type(group).__name__}")
        self.timeout_s = seconds(timeout_s, "timeout")
        self.group = group
        self.links: Links | None = None
        """Connections to the ranks with which the layout shares memory."""
        self.under_way: Agreement | None = None

    @contextlib.contextmanager
    def agreeing(self, call: str, timeout_s: float | None = None) -> Iterator[Agreement]:
        """An agreement that reports exceptions raised within it to its ranks. call: the name of the call of all ranks.

        timeout_s: for this call, in place of the group's.
        Raises GroupError: a rank did not answer (HP431), failed (HP430), or does not match (HP433).
        """
        self.under_way = agreement = Agreement(self, call, timeout_s)
        try:
            agreement.hello()
            yield agreement
        except GroupInDoubt:
            raise
        except BaseException as error:
            agreement.fail(error)
            raise
        finally:
            agreement.meeting.close()
            self.under_way = None

    def lost(self) -> dict[int, str]:
        """What Layout.lost returns."""
        return {} if self.links is None else self.links.lost()

    def notify_closed(self, wait_s: float = 0.0) -> tuple[int, ...]:
        """Notifies the others that the layout is closed. Returns the ranks that still have theirs after so long."""
        if self.links is None:
            return ()
        links, self.links = self.links, None
        links.send_closed()
        open_ranks = links.wait(time.monotonic() + wait_s)
        links.close()
        return tuple(open_ranks)

    def barrier(self, timeout_s: float | None = None) -> None:
        """Layout.barrier() does this."""
        with self.agreeing("barrier", None if timeout_s is None else seconds(timeout_s, "timeout")):
            pass


class Agreement:
    """One call that all ranks of a group make."""

    def __init__(self, ranks: LayoutRanks, call: str, timeout_s: float | None = None) -> None:
        self._ranks = ranks
        self._group = ranks.group
        self._timeout_s = ranks.timeout_s if timeout_s is None else timeout_s
        self.rank = Rank()
        """This rank; known after the hello."""
        self.look: Callable[[], None] = lambda: None
        """Called every 50 ms during a wait; its exception ends the wait."""
        self.neighbours: Sequence[int] = []
        """The other ranks of its node; known after the hello."""
        self.has_met = False
        """Whether the round `plans` has begun."""
        self.meeting = Meeting(self)
        self.number = ranks.group.next_call()
        self._what = call
        self._nonce = secrets.token_hex(16)
        self._round = _HELLO
        self._attempt = ""
        """A hash of the nonces of all ranks: messages of another run have another one."""

    def hello(self) -> None:
        """Round 1. Raises GroupError: a rank failed (HP430), did not answer (HP431), or does not match (HP433)."""
        mine = {
            "nonce": self._nonce,
            "hipplan": __version__,
            "call": self._what,
            "size": self._group.size,
            "node": node_id(),
        }
        messages_of_all = self._messages_of_all(mine)
        for key, what in (("size", "size of the group"), ("hipplan", "version of hipplan"), ("call", "call")):
            for rank, message in enumerate(messages_of_all):
                if message.get(key) != mine[key]:
                    why = f"rank {rank} has {message.get(key)}, rank {self._group.rank} has {mine[key]}"
                    raise GroupError(Diagnostic("HP433", f"the ranks do not have the same {what}", why=why))
        self._attempt = hashlib.sha256(
            "".join(str(message.get("nonce")) for message in messages_of_all).encode()
        ).hexdigest()
        nodes = [str(message.get("node")) for message in messages_of_all]
        self.rank = rank_of(self._group.rank, nodes, self._group.local_rank)
        self.neighbours = neighbours(self._group.rank, nodes)

    def plans(self, program: Program | None) -> list[RankMessage]:
        """Reports that this rank can make its program, and returns the reports of all. None: it is not a plan that is
        agreed on.

        Raises GroupError.
        """
        self.has_met = True
        where = self.meeting.begin(program)
        messages_of_all = self._messages_of_all({"plan": program.plan_of_all if program else "", **where})
        for rank, message in enumerate(messages_of_all):
            if program is not None and message.get("plan") != program.plan_of_all:
                hint = "use the same file and variables in all ranks; rank: and $(rank) express differences"
                why = f"rank {rank} and rank {self._group.rank} have different plans"
                raise GroupError(Diagnostic("HP433", "the ranks do not have the same plan", why=why, hint=hint))
        return messages_of_all

    def meet(self, program: Program, runtime: _core.Runtime, old: Program | None = None) -> Program:
        """Returns the program that also maps memory of this rank's neighbours. old: the layout's program, if any.

        Raises GroupError, MachineError.
        """
        messages_of_all = self.plans(program)
        return self.meeting.joined(messages_of_all, old, program, runtime) if self.meeting.begun else program

    def exchange(self, imports: Sequence[ImportAllocation], share: Callable[[str], int]) -> dict[str, int]:
        """Sends descriptors of this rank's allocations, and returns those of other ranks, name of a step -> descriptor.

        The caller closes them. share: returns a new descriptor of an allocation of this rank. Raises GroupError.
        """
        return self.meeting.exchange(imports, share)

    @property
    def to_place(self) -> Container[str]:
        """See Together."""
        return self.meeting.to_place

    def all_placed(self, taken: ApplyError | None) -> bool:
        """See Together.all_placed()."""
        return self.meeting.all_placed(taken)

    def at_other_addresses(self, change: Difference) -> Difference:
        """See Together.at_other_addresses()."""
        return self.meeting.at_other_addresses(change)

    def deadline(self) -> float:
        """The deadline of a wait that begins now, by time.monotonic()."""
        return time.monotonic() + self._timeout_s

    def is_over(self) -> bool:
        """Whether this round has ended without this rank. Raises what look() raises."""
        self.look()
        with contextlib.suppress(StoreLost):  # if it lasts, the deadline ends the wait
            return self._group.store.get(self._key("end"), 0.0, never) is not None
        return False

    def ended_by_others(self, missing: Sequence[int], why: str = "") -> NoReturn:
        """Raises GroupError: the failure that another rank has written, or else that these ranks are missing."""
        until = time.monotonic() + SLACK_S
        try:
            self._first(self._key(f"late.{self._group.rank}"), self._written({}), until)
            value = self._get(self._key("end"), until, never)
            if value is None:
                value = self._first(self._key("end"), self._written(self._timed_out(missing)), until)
            self._read(value)
        except StoreLost as lost:
            raise unusable(lost) from None
        raise GroupError(Diagnostic("HP434", "the group cannot be used", why=why or "a rank ended without a message"))

    def _messages_of_all(self, mine: RankMessage) -> list[RankMessage]:
        """Ends a round that nothing has been made in."""
        try:
            messages_of_all = self._end_of_round(mine, self._looks)
        except StoreLost as lost:
            raise unusable(lost) from None
        self._round = _NEXT[self._round]
        return messages_of_all

    def _looks(self) -> bool:
        self.look()
        return False

    def vote(self, look: Callable[[], None]) -> BaseException | None:
        """This rank can commit; returns when all do. look: called now and then; what it raises fails the vote,
        and is raised; where all have decided to commit by then it is returned.

        Raises GroupError: none does (HP430, HP431); GroupInDoubt (HP432): what was decided cannot be read.
        """
        raised: list[BaseException] = []

        def ends() -> bool:
            try:
                look()
            except BaseException as error:
                raised.append(error)
            return bool(raised)

        look()  # nothing has been said yet
        try:
            self._vote(ends, raised)
            if self._ranks.links is None:  # else these ranks notice each other's end already
                self._ranks.links = self.meeting.take_links()
            return raised[0] if raised else None
        finally:
            self._round = _OVER
            raised.clear()  # a circle with its traceback would hold the layout's memory until a garbage collection

    def _vote(self, ends: Look, raised: Sequence[BaseException]) -> None:
        try:
            self._end_of_round({"ready": True}, ends, raised)
        except GroupError:
            if raised:
                raise raised[0] from None
            raise
        except BaseException as error:  # the others may have read this rank's yes already
            raise doubt(self._group.rank, error) from (raised[0] if raised else None)

    def fail(self, error: BaseException) -> None:
        """Reports an error to the other ranks, which then fail at once. Does nothing once this rank has voted. Raises
        nothing, because the caller is raising the error already."""
        try:
            failed = self._interrupted(error)
            while self._round:
                # Its own key, too: if the folder is used again, this failure must not be read.
                self._group.store.first(self._key(self._group.rank), self._written(failed))
                ended = _parsed(self._group.store.first(self._key("end"), self._written(failed)))
                # If this round has succeeded already, the failure ends the next one.
                self._round = _NEXT[self._round] if "all" in ended else _OVER
        except StoreLost as lost:
            log.warning("the other ranks wait for their deadline: %s", lost)

    def _key(self, name: object) -> str:
        return f"{self.number}/{self._round}/{name}"

    def _end_of_round(self, mine: RankMessage, ends: Look, raised: Sequence[BaseException] = ()) -> list[RankMessage]:
        """Returns the messages of all ranks. ends: called in waits; true if this rank fails the round with `raised`.

        Raises GroupError if the round has failed, StoreLost.
        """
        group = self._group
        written, until = self._written(mine), time.monotonic() + self._timeout_s
        if self._first(self._key(group.rank), written, until) != written:
            raise StoreLost("another process used this rank's name: each run needs a new folder or store")
        if group.rank == 0:
            proposed = self._collected(until, ends, raised)
        else:
            until += SLACK_S
            value = self._get(self._key("end"), until, ends)
            if value is not None:
                return self._read(value)
            proposed = self._interrupted(raised[0]) if raised else self._timed_out(self._silent() or [0])
        return self._read(self._first(self._key("end"), self._written(proposed), until))

    def _collected(self, until: float, ends: Look, raised: Sequence[BaseException]) -> RankMessage:
        """Rank 0's value for the end of the round: the messages of all ranks, or the failure."""
        store, messages, missing = self._group.store, list[RankMessage](), list[int]()
        ended: list[bytes] = []

        def over() -> bool:
            """Whether another rank has failed meanwhile, or `ends` ends the wait."""
            with contextlib.suppress(StoreLost):  # the wait itself handles this
                value = store.get(self._key("end"), 0.0, never)
                if value is not None:
                    ended.append(value)
            return bool(ended) or ends()

        for rank in range(self._group.size):
            value = self._get(self._key(rank), until, over)
            if ended:
                return _parsed(ended[0])
            if raised:
                return self._interrupted(raised[0])
            if value is None:
                missing.append(rank)
                continue
            message = _parsed(value)
            if "failed" in message:  # that rank is about to write it as the end of the round
                return message
            messages.append(message)
        return self._timed_out(missing) if missing else {"all": messages}

    def _silent(self) -> list[int]:
        """Ranks without a message in this round, for an error's text; none if the store does not answer."""
        get = self._group.store.get
        try:
            return [rank for rank in range(self._group.size) if get(self._key(rank), 0.0, never) is None]
        except StoreLost:
            return []

    def _is_late(self, rank: int) -> bool:
        """Whether a rank has reported that it waits too: then it is not the one that is missing."""
        with contextlib.suppress(StoreLost):  # with MPI, only rank 0 can read it
            value = self._group.store.get(self._key(f"late.{rank}"), 0.0, never)
            return value is not None and _parsed(value).get("attempt") == self._attempt
        return False

    def _first(self, key: str, value: bytes, until: float) -> bytes:
        return self._with_retries(lambda: self._group.store.first(key, value), until, never)

    def _get(self, key: str, until: float, look: Look) -> bytes | None:
        return self._with_retries(lambda: self._group.store.get(key, until, look), until, look)

    def _with_retries(self, ask: Callable[[], _Answer], until: float, look: Look) -> _Answer:
        """Repeats a request to a store that cannot be reached for a moment."""
        while True:
            try:
                return ask()
            except StoreLost:
                if time.monotonic() >= until + SLACK_S or look():
                    raise
            time.sleep(_AGAIN_S)

    def _timed_out(self, missing: Sequence[int]) -> RankMessage:
        absent = [rank for rank in missing if not self._is_late(rank)]
        return {"missing": absent or list(missing), "by": self._group.rank, "after": self._timeout_s}

    def _interrupted(self, error: BaseException) -> RankMessage:
        return {"failed": self._group.rank, "nonce": self._nonce, **failure_message(error)}

    def _written(self, message: RankMessage) -> bytes:
        return strict_json.dumps({"attempt": self._attempt, **message}).encode()

    def _read(self, value: bytes) -> list[RankMessage]:
        ended = _parsed(value)
        try:
            if "failed" in ended:
                if ended["failed"] == self._group.rank and ended.get("nonce") != self._nonce:
                    raise ValueError("it is from another run")
                raise GroupError(failure(ended))
            if "missing" in ended:
                raise GroupError(silence(ended, self._group.rank))
            messages_of_all = ended["all"]
            if ended["attempt"] != self._attempt or not isinstance(messages_of_all, list):
                raise ValueError("it is from another run")
            if any(message["attempt"] != self._attempt for message in messages_of_all):
                raise ValueError("a rank's message is from another run")
            if self._round == _VOTE and [message["ready"] for message in messages_of_all] != [True] * self._group.size:
                raise ValueError("not all ranks are ready")
        except (ValueError, TypeError, LookupError, OverflowError) as error:
            raise StoreLost(f"the group's store holds a message that does not fit: {error}") from None
        messages: list[RankMessage] = messages_of_all
        return messages


def _parsed(value: bytes) -> RankMessage:
    try:
        message = strict_json.loads(value)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise StoreLost("the group's store holds something that is not a hipplan message")
    return message
