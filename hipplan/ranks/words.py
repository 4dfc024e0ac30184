"""The texts of ranks' failures, for other ranks and for callers."""

from __future__ import annotations

from typing import Any

from hipplan.errors import Diagnostic, GroupError, GroupInDoubt, HipplanError, SettingError

RankMessage = dict[str, Any]
"""One message."""

_TEXT_MAX = 2000


def refused(summary: str, why: str, hint: str = "") -> SettingError:
    return SettingError(Diagnostic("HP434", summary, why=why, hint=hint))


def unusable(lost: Exception) -> GroupError:
    return GroupError(Diagnostic("HP434", "the group cannot be used", why=str(lost)))


def cannot_share(why: str) -> GroupError:
    """The error of a rank whose neighbours sent something else than its memory needs, or could not be reached."""
    return GroupError(Diagnostic("HP434", "the ranks of this node cannot share memory", why=why[:500]))


def doubt(rank: int, error: BaseException) -> GroupInDoubt:
    summary = f"rank {rank} cannot read the decision of its group"
    hint = "close() frees what this rank made, whatever the others decided"
    return GroupInDoubt(Diagnostic("HP432", summary, why=_text_of(error), hint=hint))


def _text_of(error: BaseException) -> str:
    try:
        return str(error)[:_TEXT_MAX]
    except Exception:  # a class of the caller's that cannot be written
        return "an error without a message"


def failure_message(error: BaseException) -> RankMessage:
    """An error for other ranks: its first diagnostic, without the text of the plan."""
    if not isinstance(error, HipplanError) or not error.diagnostics:
        return {"what": f"{type(error).__name__}: {_text_of(error)}"}
    first = error.diagnostics[0]
    notes = [note[:_TEXT_MAX] for note in first.notes[:4] if note.startswith("driver:")]
    return {"code": first.code, "what": first.summary, "at": str(first.span or ""), "why": first.why, "notes": notes}


def failure(ended: RankMessage) -> Diagnostic:
    code, place = ended.get("code", ""), ended.get("at", "")
    what = f"{f'{place}: ' if place else ''}{f'{code}: ' if code else ''}{ended['what']}"
    notes = tuple(str(note) for note in ended.get("notes", ()))
    why = "; ".join(filter(None, (str(what), str(ended.get("why", "")))))
    summary = f"rank {int(ended['failed'])} failed, so all ranks stay as they were"
    return Diagnostic("HP430", summary, why=why, notes=notes)


def silence(ended: RankMessage, own_rank: int) -> Diagnostic:
    ranks = [int(rank) for rank in ended["missing"]]
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks[:10]))}"
    more = f" and {len(ranks) - 10} more" if len(ranks) > 10 else ""
    summary = f"{who}{more} did not answer within {float(ended['after']):g} s, so all ranks stay as they were"
    waited = f"rank {int(ended['by'])} waited for"
    if own_rank in ranks and own_rank != int(ended["by"]):
        hint = "start all ranks again with a fresh group; --timeout (timeout= in Python) waits longer"
        return Diagnostic("HP431", summary, why=f"{waited} this rank, which was too late", hint=hint)
    why = f"{waited} {'it' if len(ranks) == 1 else 'them'}"
    hint = "check that it was started, for the same group, and its output; --timeout (timeout= in Python) waits longer"
    return Diagnostic("HP431", summary, why=why, hint=hint)
