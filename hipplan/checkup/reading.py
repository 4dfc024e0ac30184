"""Reads a checkup's file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hipplan.checkup.examination import Document
from hipplan.checkup.page import LIBRARY, SPEEDS
from hipplan.errors import Diagnostic, PlanError, reason_of
from hipplan.files import strict_json

_BYTES_MAX = 4 << 20
_KEYS = {"hipplan", "date", "seconds", "system", "findings", "left", "answers"}
_TEXTS = ("part", "question", "outcome", "why")


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
    if not all(map(_is_answer, answers)):
        return False
    profile = answers[0]["seen"]
    return "machine" in profile and all(isinstance(profile.get(name), str) for name in LIBRARY)


def _is_answer(answer: Any) -> bool:
    if not isinstance(answer, dict) or not isinstance(answer.get("seen"), dict):
        return False
    texts = all(isinstance(answer.get(name), str) for name in _TEXTS)
    return texts and all(_is_speed(value) for name, value in answer["seen"].items() if name.endswith(SPEEDS))


def _is_speed(value: Any) -> bool:
    """Whether it is a number, or that of hipplan's memory and the one of ordinary memory beside it."""
    numbers = value if isinstance(value, list) else [value]
    return bool(numbers) and all(number.__class__ in (int, float) for number in numbers)


def _no_report(path: str, why: str) -> PlanError:
    hint = "`hipplan doctor --report FILE` writes one"
    return PlanError(Diagnostic("HP466", f"this is no report of a checkup: {path}", why=why, hint=hint))
