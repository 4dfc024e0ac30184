"""A checkup as a page of text, and what two of them differ in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from hipplan.checkup.asking import AS_DECLARED, NOT_ASKED, SEEN
from hipplan.checkup.examination import Document
from hipplan.checkup.parts import AT_THE_END, PROFILE
from hipplan.checkup.question import is_within
from hipplan.units import about_size

_QUIET = (AS_DECLARED, SEEN)
"""Outcomes that need no word: what was seen stands there."""
LIBRARY = ("kind", "library", "HIP", "driver")
"""What is said of the library that was asked."""
SPEEDS = (", us", ", ms", ", GB/s")
"""The ends of the names of speeds and times."""
_NO_RATIO = 1.25
"""Numbers of speeds that are closer than this are one."""
Row = tuple[str, str, str]


def page(document: Document) -> str:
    lines = [*_head(document), ""]
    answers = [answer for answer in document["answers"] if answer["part"] not in (PROFILE, AT_THE_END)]
    for part, of_part in groupby(answers, key=lambda answer: answer["part"]):
        lines += [part, *(line for answer in of_part for line in _answer(answer)), ""]
    counts = Counter(answer["outcome"] for answer in answers)
    lines.append(", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()))
    return "\n".join([*lines, ""])


def _head(document: Document) -> Iterator[str]:
    profile, system = document["answers"][0]["seen"], document["system"]
    drivers = "".join(f", {name} driver {version}" for name, version in system["drivers"].items())
    yield f"hipplan {document['hipplan']}, {document['date']}, {document['seconds']:.0f} s"
    yield f"{profile['kind']}: {profile['library']}, HIP {profile['HIP']}, driver {profile['driver']}"
    yield f"Linux {system['kernel']}, {system['architecture']}, {system['processors']} processors{drivers}"
    for ordinal, device in enumerate(profile["machine"]["devices"]):
        memory = about_size(device["memory"]) if "memory" in device else "unknown memory"
        yield f"gpu.{ordinal}: {device['name']}, {device.get('arch', 'unknown instruction set')}, {memory}"
    for finding in document["findings"]:
        yield f"{finding['level']}: {finding['summary']}"
    if document["left"] is not None:
        taken = ", ".join(f"{size / 2**20:.0f}" for size in document["left"])
        yield f"MiB of each device that were free before and are not now: {taken}"


def _answer(answer: dict[str, Any]) -> Iterator[str]:
    outcome, seen, declared = answer["outcome"], answer["seen"], answer["declared"]
    if [*seen] == ["code"]:
        word = "" if outcome in _QUIET else f"  {outcome.upper()}: declared is {_declared(declared['code'])}"
        yield f"  {answer['question']}: {seen['code']}{word}"
        return
    yield f"  {answer['question']}" + ("" if outcome in _QUIET else f": {outcome.upper()}  {answer['why']}".rstrip())
    for name, value in seen.items():
        differs = name in declared and not is_within(value, _several(declared[name]))
        yield f"    {name}: {_text(value)}" + (f"  declared is {_declared(declared[name])}" if differs else "")


def _several(value: Any) -> Any:
    """A list of JSON as the tuple it was."""
    return tuple(value) if isinstance(value, list) else value


def _declared(value: Any) -> str:
    return " or ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _text(value: Any) -> str:
    """A pair is of hipplan's memory and of ordinary memory beside it."""
    if isinstance(value, list):
        return " beside ".join(f"{item:g}" if isinstance(item, float) else str(item) for item in value)
    return str(value)


def differences(a: Document, b: Document) -> list[Row]:
    """What two checkups saw otherwise: where, what the first saw, what the second saw. Speeds only where one is 1.25
    times the other or more."""
    rows: list[Row] = []
    for name in LIBRARY:
        left, right = (document["answers"][0]["seen"][name] for document in (a, b))
        rows += [(name, left, right)] if left != right else []
    ours, theirs = _by_place(a), _by_place(b)
    for place in [*ours, *(place for place in theirs if place not in ours)]:
        left, right = ours.get(place, {}), theirs.get(place, {})
        for key in [*left, *(key for key in right if key not in left)]:
            if not _is_alike(key, left.get(key), right.get(key)):
                where = ": ".join(filter(None, (*place, key)))
                rows.append((where, _shown(left, key), _shown(right, key)))
    return rows


def _by_place(document: Document) -> dict[tuple[str, str], dict[str, Any]]:
    """Part and question -> what was seen; or the outcome, where nothing was."""
    return {
        (answer["part"], answer["question"]): answer["seen"] or {"": f"{answer['outcome']}: {answer['why']}"}
        for answer in document["answers"]
        if answer["part"] not in (PROFILE, AT_THE_END) and answer["outcome"] != NOT_ASKED
    }


def _is_alike(key: str, left: Any, right: Any) -> bool:
    if left is None or right is None or not key.endswith(SPEEDS):
        return bool(left == right)
    first, other = (float(value[0] if isinstance(value, list) else value) for value in (left, right))
    return max(first, other) < _NO_RATIO * max(min(first, other), 1e-9)


def _shown(seen: dict[str, Any], key: str) -> str:
    return _text(seen[key]) if key in seen else "-"
