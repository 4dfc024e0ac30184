"""How ranks agree: the same three rounds on success and on failure, each with a deadline.

hello: every rank says who and where it is. plans: every rank has read its plan, and knows that it can be made. vote:
every rank has made, mapped, filled and read back what is its own. Between the last two the ranks of a node send each
other descriptors of their memory, if the plan asks for it (meeting.py). A round ends with one value that is written
once and read by all: the messages of all ranks, written by rank 0, or the failure, written by the rank that fails first
or has waited too long. So all ranks commit, or none does, as long as that value can be read.
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
from hipplan.errors import Diagnostic, GroupError, GroupInDoubt
from hipplan.files import strict_json
from hipplan.language.rank import Rank
from hipplan.plain import seconds
from hipplan.program.difference import Difference
from hipplan.program.program import Program
from hipplan.program.steps import ImportAllocation
from hipplan.ranks.groups import Group
from hipplan.ranks.meeting import Meeting
from hipplan.ranks.mesh import Mesh
from hipplan.ranks.node import neighbours, node_id, rank_of
from hipplan.ranks.stores import Look, StoreLost, never
from hipplan.ranks.words import Said, doubt, failure, silence, told_to_others, unusable

log = logging.getLogger("hipplan")

SLACK_S = 1.0
"""How much longer than rank 0 the others wait, so that one rank ends a failed round and not all at once; and how much
longer a store that does not answer is asked again."""
_AGAIN_S = 0.05
_HELLO, _PLANS, _VOTE, _OVER = "hello", "plans", "vote", ""
_NEXT = {_HELLO: _PLANS, _PLANS: _VOTE, _VOTE: _OVER}

_Answer = TypeVar("_Answer")


class Ranks:
    """A group whose ranks apply a plan, and change its layouts, together."""

    def __init__(self, group: Group, timeout_s: float) -> None:
        """timeout_s: how long a rank that is ready waits for the others, in each round.

        Raises TypeError, ValueError.
        """
        if not isinstance(group, Group):
            raise TypeError(f"group must be from hipplan.group(), not {type(group).__name__}")
        self.timeout_s = seconds(timeout_s, "timeout")
        self.group = group
        self.links: Mesh | None = None
        """To the ranks whose memory the layout maps, or which map its."""
        self.under_way: Agreement | None = None

    @contextlib.contextmanager
    def agreeing(self, call: str, timeout_s: float | None = None) -> Iterator[Agreement]:
        """An agreement that reports exceptions raised within it to its ranks. call: what all of them are about to do.

        timeout_s: another one than for the other calls.
        Raises GroupError: a rank did not come (HP431), cannot take part (HP430), or does not fit (HP433).
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
        """Of Layout.lost."""
        return {} if self.links is None else self.links.lost()

    def part(self, wait_s: float = 0.0) -> tuple[int, ...]:
        """Notifies the others that the layout is closed. Returns the ranks that still hold theirs after so long."""
        if self.links is None:
            return ()
        links, self.links = self.links, None
        links.say_closed()
        held = links.wait(time.monotonic() + wait_s)
        links.close()
        return tuple(held)

    def barrier(self, timeout_s: float | None = None) -> None:
        """Of Layout.barrier()."""
        with self.agreeing("barrier", None if timeout_s is None else seconds(timeout_s, "timeout")):
            pass


class Agreement:
    """One call that all ranks of a group make."""

    def __init__(self, ranks: Ranks, call: str, timeout_s: float | None = None) -> None:
        self._ranks = ranks
        self._group = ranks.group
        self._timeout_s = ranks.timeout_s if timeout_s is None else timeout_s
        self.rank = Rank()
        """Which one this is; known after the hello."""
        self.look: Callable[[], None] = lambda: None
        """Called now and then while this waits; what it raises ends the wait."""
        self.neighbours: Sequence[int] = []
        """The other ranks of its node; likewise."""
        self.has_met = False
        """Whether the ranks know of each other that their plans can be made."""
        self.meeting = Meeting(self)
        self.number = ranks.group.next_call()
        self._what = call
        self._nonce = secrets.token_hex(16)
        self._round = _HELLO
        self._attempt = ""
        """Of the nonces of all ranks: a message of another run has another one."""

    def hello(self) -> None:
        """Raises GroupError: a rank cannot take part (HP430), did not come (HP431), or does not fit (HP433)."""
        mine = {
            "nonce": self._nonce,
            "hipplan": __version__,
            "call": self._what,
            "size": self._group.size,
            "node": node_id(),
        }
        everybody = self._said_by_all(mine)
        for key, what in (("size", "size of the group"), ("hipplan", "version of hipplan"), ("call", "call")):
            for rank, said in enumerate(everybody):
                if said.get(key) != mine[key]:
                    why = f"rank {rank} has {said.get(key)}, rank {self._group.rank} has {mine[key]}"
                    raise GroupError(Diagnostic("HP433", f"the ranks do not have the same {what}", why=why))
        self._attempt = hashlib.sha256("".join(str(said.get("nonce")) for said in everybody).encode()).hexdigest()
        nodes = [str(said.get("node")) for said in everybody]
        self.rank = rank_of(self._group.rank, nodes, self._group.local_rank)
        self.neighbours = neighbours(self._group.rank, nodes)

    def plans(self, program: Program | None) -> list[Said]:
        """Reports that this rank can make its program, and returns the reports of all. None: it is not a plan that is
        agreed on.

        Raises GroupError.
        """
        self.has_met = True
        door = self.meeting.begin(program)
        everybody = self._said_by_all({"plan": program.plan_of_all if program else "", **door})
        for rank, said in enumerate(everybody):
            if program is not None and said.get("plan") != program.plan_of_all:
                hint = "use the same file and variables in all ranks; rank: and $(rank) express differences"
                why = f"rank {rank} and rank {self._group.rank} have different plans"
                raise GroupError(Diagnostic("HP433", "the ranks do not have the same plan", why=why, hint=hint))
        return everybody

    def meet(self, program: Program, runtime: _core.Runtime, old: Program | None = None) -> Program:
        """Returns the program that also maps what the neighbours of this rank make. old: what the layout is.

        Raises GroupError, MachineError.
        """
        everybody = self.plans(program)
        return self.meeting.joined(everybody, old, program, runtime) if self.meeting.begun else program

    def exchange(self, imports: Sequence[ImportAllocation], share: Callable[[str], int]) -> dict[str, int]:
        """This rank has made what is its own: sends it. Returns what others have made, name of a step -> descriptor.

        The caller closes them. share: a new descriptor of an allocation of this rank. Raises GroupError.
        """
        return self.meeting.exchange(imports, share)

    @property
    def to_place(self) -> Container[str]:
        """See Together."""
        return self.meeting.to_place

    def placed(self, here: bool) -> bool:
        """See Together.placed()."""
        return self.meeting.placed(here)

    def elsewhere(self, way: Difference) -> Difference:
        """See Together.elsewhere()."""
        return self.meeting.elsewhere(way)

    def until(self) -> float:
        """When a wait that begins now is over, by time.monotonic()."""
        return time.monotonic() + self._timeout_s

    def over(self) -> bool:
        """Whether this round has ended without this rank. Raises what the look raises."""
        self.look()
        with contextlib.suppress(StoreLost):  # for a moment, or else the deadline comes
            return self._group.store.get(self._key("end"), 0.0, never) is not None
        return False

    def ended_by_others(self, missing: Sequence[int], why: str = "") -> NoReturn:
        """Raises GroupError: what another rank says of the end of this call, or else that these are missing."""
        until = time.monotonic() + SLACK_S
        try:
            found = self._get(self._key("end"), until, never)
            if found is None:
                found = self._first(self._key("end"), self._written(self._in_vain(list(missing))), until)
            self._read(found)
        except StoreLost as lost:
            raise unusable(lost) from None
        raise GroupError(Diagnostic("HP434", "the group cannot be used", why=why or "a rank ended without a message"))

    def _said_by_all(self, mine: Said) -> list[Said]:
        """Ends a round that nothing has been made in."""
        try:
            everybody = self._end_of_round(mine, self._looks)
        except StoreLost as lost:
            raise unusable(lost) from None
        self._round = _NEXT[self._round]
        return everybody

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
                self._ranks.links = self.meeting.take_mesh()
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
        except BaseException as error:  # whatever it is, the others may have heard the yes
            raise doubt(self._group.rank, error) from (raised[0] if raised else None)

    def fail(self, error: BaseException) -> None:
        """Tells the others, who give up at once; nothing once this rank has voted. Raises nothing: the error is on its
        way already."""
        try:
            failed = self._interrupted(error)
            while self._round:
                # Its own key, too: a folder that is used again must not tell of this failure.
                self._group.store.first(self._key(self._group.rank), self._written(failed))
                ended = _parsed(self._group.store.first(self._key("end"), self._written(failed)))
                # A round that ended well is over, so the others learn of it in the next.
                self._round = _NEXT[self._round] if "all" in ended else _OVER
        except StoreLost as lost:
            log.warning("the other ranks wait for their deadline: %s", lost)

    def _key(self, name: object) -> str:
        return f"{self.number}/{self._round}/{name}"

    def _end_of_round(self, mine: Said, ends: Look, raised: Sequence[BaseException] = ()) -> list[Said]:
        """The messages of all ranks. ends: whether this rank fails the round with what it has `raised`.

        Raises GroupError where the round was aborted, StoreLost.
        """
        group = self._group
        written, until = self._written(mine), time.monotonic() + self._timeout_s
        if self._first(self._key(group.rank), written, until) != written:
            raise StoreLost("another process used this rank's name: each run needs a new folder or store")
        if group.rank == 0:
            proposed = self._collected(until, ends, raised)
        else:
            until += SLACK_S
            found = self._get(self._key("end"), until, ends)
            if found is not None:
                return self._read(found)
            proposed = self._interrupted(raised[0]) if raised else self._in_vain(self._silent() or [0])
        return self._read(self._first(self._key("end"), self._written(proposed), until))

    def _collected(self, until: float, ends: Look, raised: Sequence[BaseException]) -> Said:
        """What all ranks say; or what ends the round without it."""
        store, said, missing = self._group.store, list[Said](), list[int]()
        ended: list[bytes] = []

        def over() -> bool:
            """Whether somebody has failed meanwhile, or a look ends the wait."""
            with contextlib.suppress(StoreLost):  # which is for the wait itself to find out, and to bear for a moment
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
            if "failed" in message:  # which that rank is about to write as the end
                return message
            said.append(message)
        return self._in_vain(missing) if missing else {"all": said}

    def _silent(self) -> list[int]:
        """Ranks that have said nothing in this round; none where the store cannot tell, for these are only words."""
        get = self._group.store.get
        try:
            return [rank for rank in range(self._group.size) if get(self._key(rank), 0.0, never) is None]
        except StoreLost:
            return []

    def _first(self, key: str, value: bytes, until: float) -> bytes:
        return self._persistently(lambda: self._group.store.first(key, value), until, never)

    def _get(self, key: str, until: float, look: Look) -> bytes | None:
        return self._persistently(lambda: self._group.store.get(key, until, look), until, look)

    def _persistently(self, ask: Callable[[], _Answer], until: float, look: Look) -> _Answer:
        """A store that cannot be reached for a moment is asked again."""
        while True:
            try:
                return ask()
            except StoreLost:
                if time.monotonic() >= until + SLACK_S or look():
                    raise
            time.sleep(_AGAIN_S)

    def _in_vain(self, missing: list[int]) -> Said:
        return {"missing": missing, "by": self._group.rank, "after": self._timeout_s}

    def _interrupted(self, error: BaseException) -> Said:
        return {"failed": self._group.rank, "nonce": self._nonce, **told_to_others(error)}

    def _written(self, said: Said) -> bytes:
        return strict_json.dumps({"attempt": self._attempt, **said}).encode()

    def _read(self, value: bytes) -> list[Said]:
        ended = _parsed(value)
        try:
            if "failed" in ended:
                if ended["failed"] == self._group.rank and ended.get("nonce") != self._nonce:
                    raise ValueError("it is from another run")
                raise GroupError(failure(ended))
            if "missing" in ended:
                raise GroupError(silence(ended, self._group.rank))
            everybody = ended["all"]
            if ended["attempt"] != self._attempt or not isinstance(everybody, list):
                raise ValueError("it is from another run")
            if any(said["attempt"] != self._attempt for said in everybody):
                raise ValueError("a rank's message is from another run")
            if self._round == _VOTE and [said["ready"] for said in everybody] != [True] * self._group.size:
                raise ValueError("not all ranks are ready")
        except (ValueError, TypeError, LookupError, OverflowError) as error:
            raise StoreLost(f"the group's store holds a message that does not fit: {error}") from None
        found: list[Said] = everybody
        return found


def _parsed(value: bytes) -> Said:
    try:
        said = strict_json.loads(value)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise StoreLost("the group's store holds something that is not a hipplan message")
    return said
