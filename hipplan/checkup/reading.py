"""Reads a checkup's file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hipplan.checkup.examination import Document
from hipplan.errors import Diagnostic, PlanError, reason_of
from hipplan.files import strict_json

_BYTES_MAX = 4 << 20
_KEYS = {"hipplan", "date", "seconds", "system", "findings", "left", "answers"}
_OF_ANSWER = {"part", "question", "outcome", "seen", "declared", "why"}


def read(path: str) -> Document:
    """Raises PlanError: HP001 it cannot be read, HP466 it is no report."""
    try:
        with Path(path).open("rb") as file:
            text = file.read(_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        raise PlanError(Diagnostic("HP001", f"{path} cannot be read", why=reason_of(error))) from None
    if len(text) > _BYTES_MAX:
        raise _no_report(path, f"it has more than {_BYTES_MAX:,} bytes")
    try:
        document = strict_json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _no_report(path, str(error)) from None
    if not isinstance(document, dict) or document.get("event") != "checkup" or not document.keys() >= _KEYS:
        raise _no_report(path, "it is other JSON")
    if not _are_answers(document["answers"]):
        raise _no_report(path, "its answers are not those of a checkup")
    return document


def _are_answers(answers: Any) -> bool:
    if not isinstance(answers, list) or not answers:
        return False
    whole = all(
        isinstance(answer, dict) and answer.keys() >= _OF_ANSWER and isinstance(answer["seen"], dict)
        for answer in answers
    )
    return whole and answers[0]["seen"].keys() >= {"kind", "library", "HIP", "driver", "machine"}


def _no_report(path: str, why: str) -> PlanError:
    hint = "`hipplan doctor --report FILE` writes one"
    return PlanError(Diagnostic("HP466", f"this is no report of a checkup: {path}", why=why, hint=hint))
