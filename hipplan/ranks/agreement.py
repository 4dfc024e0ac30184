"""How ranks agree: the same two rounds on success and on failure, each with a deadline.

hello: every rank says who it is, or why it cannot take part. vote: every rank has made and read back what is its own.
A round ends with one value that is written once and read by all: what everybody said, written by rank 0, or why it ends
in vain, written by whoever fails first or has waited too long. So all ranks commit, or none does, as long as that value
can be read.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import secrets
import signal
import time
from collections.abc import Iterator, Sequence
from typing import Any

from hipplan import __version__
from hipplan.errors import Diagnostic, GroupError, GroupInDoubt, HipplanError
from hipplan.files import strict_json
from hipplan.ranks.groups import Group
from hipplan.ranks.stores import StoreLost

log = logging.getLogger("hipplan")

SLACK_S = 1.0
"""How much longer than rank 0 the others wait, so that one rank ends a round in vain and not all at once."""
_TEXT_MAX = 2000

Said = dict[str, Any]


@contextlib.contextmanager
def agreeing(group: Group | None, timeout_s: float) -> Iterator[Agreement | None]:
    """An agreement whose ranks hear of what is raised within; None where there is no group."""
    if group is None:
        yield None
        return
    agreement = Agreement(group, timeout_s)
    with agreement.telling():
        yield agreement


class Agreement:
    """One call that all ranks of a group make."""

    def __init__(self, group: Group, timeout_s: float) -> None:
        """timeout_s: how long a rank that is ready waits for the others, in each round."""
        self._group = group
        self._timeout_s = timeout_s
        self._call = f"{group.next_call()}"
        self._round = "hello"
        self._attempt = ""
        """Of the nonces of all ranks: a message of another run has another one."""

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """What is raised within, before this rank has voted, is told to the others, who give up at once."""
        try:
            yield
        except (GroupError, GroupInDoubt):
            raise
        except BaseException as error:
            self.fail(error)
            raise

    def hello(self, plan: str) -> None:
        """Raises GroupError: a rank cannot take part (HP430), did not come (HP431), or does not fit (HP433)."""
        mine = {"nonce": secrets.token_hex(16), "hipplan": __version__, "plan": plan, "size": self._group.size}
        with self._reaching():
            everybody = self._end_of_round(mine)
        for key, what in (("hipplan", "version of hipplan"), ("size", "size of the group")):
            for rank, said in enumerate(everybody):
                if said.get(key) != mine[key]:
                    why = f"rank {rank} has {said.get(key)}, rank {self._group.rank} {mine[key]}"
                    raise GroupError(Diagnostic("HP433", f"the ranks do not have the same {what}", why=why))
        self._attempt = hashlib.sha256("".join(str(said["nonce"]) for said in everybody).encode()).hexdigest()
        self._round = "vote"

    def vote(self, came: Sequence[int] = ()) -> None:
        """This rank can commit; returns when all do. came: signals; the first that comes ends the vote in vain, unless
        it is decided already. Raises GroupError: none does (HP430, HP431); GroupInDoubt (HP432): what was decided
        cannot be read."""
        try:
            self._end_of_round({"ready": True}, came)
        except StoreLost as lost:
            summary = f"rank {self._group.rank} cannot read what its group has decided"
            hint = "close() gives back what this rank has made, whatever the others do"
            raise GroupInDoubt(Diagnostic("HP432", summary, why=str(lost), hint=hint)) from None
        finally:
            self._round = ""

    @contextlib.contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except StoreLost as lost:
            why = str(lost)
            raise GroupError(Diagnostic("HP434", "the group cannot be reached", why=why)) from None

    def _key(self, name: object) -> str:
        return f"{self._call}/{self._round}/{name}"

    def _end_of_round(self, mine: Said, came: Sequence[int] = ()) -> list[Said]:
        """What everybody says. Raises GroupError where the round was aborted, StoreLost."""
        group, store = self._group, self._group.store
        written = self._written(mine)
        if store.first(self._key(group.rank), written) != written:
            raise StoreLost("another process has spoken for this rank: each run needs a fresh folder or store")
        until = time.monotonic() + self._timeout_s
        if group.rank == 0:
            decided = store.first(self._key("end"), self._collected(until, came))
        else:
            decided = self._awaited(until + SLACK_S, came)
        return self._read(decided)

    def _awaited(self, until: float, came: Sequence[int]) -> bytes:
        """What ends the round, which rank 0 writes; this rank does so if it waits in vain or is interrupted."""
        store, key = self._group.store, self._key("end")
        while True:
            found = store.get(key, min(until, time.monotonic() + _LOOK_S))
            if found is not None:
                return found
            if came:
                return store.first(key, self._written(self._interrupted(came)))
            if time.monotonic() >= until:
                return store.first(key, self._written(self._in_vain([0])))

    def _interrupted(self, came: Sequence[int]) -> Said:
        return {"failed": self._group.rank, "what": signal.Signals(came[0]).name}

    def _collected(self, until: float, came: Sequence[int]) -> bytes:
        """What all ranks say; or what ends the round without it."""
        said: list[Said] = []
        missing: list[int] = []
        for rank in range(self._group.size):
            while True:
                value = self._group.store.get(self._key(rank), min(until, time.monotonic() + _LOOK_S))
                if value is not None or time.monotonic() >= until:
                    break
                ended = self._group.store.get(self._key("end"), 0.0)  # somebody failed meanwhile
                if ended is not None:
                    return ended
                if came:
                    return self._written(self._interrupted(came))
            if value is None:
                missing.append(rank)
            else:
                said.append(_parsed(value))
        return self._written(self._in_vain(missing) if missing else {"all": said})

    def _in_vain(self, missing: list[int]) -> Said:
        return {"missing": missing, "by": self._group.rank, "after": self._timeout_s}

    def fail(self, error: BaseException) -> None:
        """Tells the others, who give up at once; nothing once this rank has voted. Raises nothing: the error is on its
        way already."""
        if not self._round:
            return
        try:
            self._group.store.first(self._key("end"), self._written({"failed": self._group.rank, **_told(error)}))
        except StoreLost as lost:
            log.warning("the other ranks wait for their deadline: %s", lost)

    def _written(self, said: Said) -> bytes:
        return strict_json.dumps({"attempt": self._attempt, **said}).encode()

    def _read(self, value: bytes) -> list[Said]:
        ended = _parsed(value)
        try:
            if "failed" in ended:
                raise GroupError(_failure(ended))
            if "missing" in ended:
                raise GroupError(_silence(ended))
            everybody = ended["all"]
            if ended["attempt"] != self._attempt or len(everybody) != self._group.size:
                raise ValueError("it is of another run")
            if any(said["attempt"] != self._attempt for said in everybody):
                raise ValueError("a rank's message is of another run")
        except (ValueError, TypeError, LookupError) as error:
            raise StoreLost(f"what stands in the group's store is no message of this run: {error}") from None
        found: list[Said] = everybody
        return found


_LOOK_S = 0.05
"""How often a rank that waits looks whether a signal has come, and rank 0 whether another rank has ended the round."""


def _parsed(value: bytes) -> Said:
    try:
        said = strict_json.loads(value)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise StoreLost("what stands in the group's store is no message of hipplan's")
    return said


def _told(error: BaseException) -> Said:
    """An error for other ranks: its first diagnostic, without the text of the plan."""
    if not isinstance(error, HipplanError) or not error.diagnostics:
        return {"what": f"{type(error).__name__}: {error}"[:_TEXT_MAX]}
    first = error.diagnostics[0]
    notes = [note[:_TEXT_MAX] for note in first.notes[:4] if note.startswith("driver:")]
    return {"code": first.code, "what": first.summary, "at": str(first.span or ""), "why": first.why, "notes": notes}


def _failure(ended: Said) -> Diagnostic:
    code, place = ended.get("code", ""), ended.get("at", "")
    what = f"{f'{place}: ' if place else ''}{f'{code}: ' if code else ''}{ended['what']}"
    notes = tuple(str(note) for note in ended.get("notes", ()))
    why = "; ".join(filter(None, (str(what), str(ended.get("why", "")))))
    return Diagnostic("HP430", f"rank {int(ended['failed'])} failed, so no rank keeps anything", why=why, notes=notes)


def _silence(ended: Said) -> Diagnostic:
    ranks = [int(rank) for rank in ended["missing"]]
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks[:10]))}"
    more = f" and {len(ranks) - 10} more" if len(ranks) > 10 else ""
    summary = f"{who}{more} did not answer within {float(ended['after']):g} s, so no rank keeps anything"
    why = f"rank {int(ended['by'])} waited for {'it' if len(ranks) == 1 else 'them'}"
    return Diagnostic("HP431", summary, why=why, hint="look at what that process says; timeout= waits longer")
