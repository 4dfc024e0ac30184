"""The numbers of a repetition: from its output, by regular expressions or as lines of JSON, and from what a function
returned."""

from __future__ import annotations

import ctypes
import math
import os
import re
import sys
from collections.abc import Mapping
from typing import Any

from hipplan.errors import Problem, printable
from hipplan.files import strict_json
from hipplan.plain import called, number, shown

OUTPUT_MAX = 16 << 20
"""Bytes of a repetition's output that are read: the last ones."""
_LINE_MAX = 100_000
"""Characters of a line that patterns are matched with."""
_END_OF_LINE = re.compile(r"\r\n|\n|\r")
"""Not what else splits lines in Unicode, which the text of a JSON string may have."""


def collected(wanted: Mapping[str, str | None], since: int, returned: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of a repetition, in its own process: a pattern that takes for ever ends with its time.

    wanted: name -> pattern. since: bytes of standard output before the run that counts. Raises Problem (HP462): one of
    the wanted ones is missing, or not a number; or a name cannot be printed.
    """
    lines = _END_OF_LINE.split(_output(since))
    given: dict[str, Any] = {}
    for line in lines:
        given |= {name: value for name, value in _of_json(line).items() if _is_number(value) or name not in given}
    if not wanted:
        given = {**{name: value for name, value in given.items() if _is_number(value)}, **returned}
        return {_name(name): _finite(name, value) for name, value in given.items()}
    given |= returned
    return {name: _metric(name, pattern, lines, given) for name, pattern in wanted.items()}


def output_size() -> int:
    """Bytes that this process and its children have written to standard output."""
    sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)  # what C code in this process has printed
    return os.fstat(1).st_size


def _output(since: int) -> str:
    """What was written to standard output, a file, since then; of very much the end."""
    begin = max(since, output_size() - OUTPUT_MAX)
    return os.pread(1, OUTPUT_MAX, begin).decode(errors="replace")


def numbers(returned: object) -> dict[str, float]:
    """What a function has returned, as metrics: nothing, or a mapping of names to numbers. Raises Problem (HP462)."""
    if returned is None:
        return {}
    if not isinstance(returned, Mapping):
        why = f"it returned {called(returned)}"
        raise Problem("HP462", "the function must return a mapping of names to numbers, or nothing", why=why)
    return {_name(name): _finite(name, value) for name, value in returned.items()}


def _name(name: object) -> str:
    """The name of a metric, which tables and plots print."""
    if not isinstance(name, str):
        raise Problem("HP462", f"a metric's name must be text, not {called(name)}")
    if printable(name) != name:
        hint = "leave out control characters, line breaks and halves of surrogate pairs"
        summary = f"a metric's name has a character that cannot be printed: {printable(shown(name))}"
        raise Problem("HP462", summary, hint=hint)
    return name


def _metric(name: str, match: str | None, lines: list[str], given: Mapping[str, Any]) -> float:
    if match is None:
        if name not in given:
            hint = "print a line of JSON that has it, return it, or write a pattern"
            raise Problem("HP462", f"there is no metric '{name}'", why="no line of the output has it", hint=hint)
        return _finite(name, given[name])
    last = _last(re.compile(match), lines)
    if last is None:
        raise Problem("HP462", f"there is no metric '{name}'", why=f"no line of the output matches {shown(match)}")
    try:
        return _finite(name, float(last[1]))
    except (TypeError, ValueError):
        raise Problem("HP462", f"'{name}' is not a number: {shown(last[1])}") from None


def _last(pattern: re.Pattern[str], lines: list[str]) -> re.Match[str] | None:
    """The last match of all lines that is not empty: (.*) matches once more at the end of each line."""
    for line in reversed(lines):
        if matches := [match for match in pattern.finditer(line[:_LINE_MAX]) if match[0] or match[1]]:
            return matches[-1]
    return None


def _of_json(line: str) -> dict[str, Any]:
    """What a line has that is a JSON object; other lines have nothing."""
    if not line.lstrip().startswith("{"):
        return {}
    try:
        return strict_json.loads_of_others(line)  # type: ignore[no-any-return]
    except (ValueError, RecursionError):
        return {}


def _is_number(value: object) -> bool:
    return value.__class__ in (int, float)


def _finite(name: str, value: Any) -> float:
    try:
        value = number(value)
        is_finite = _is_number(value) and math.isfinite(value)
    except OverflowError:
        raise Problem("HP462", f"'{name}' is too large for a floating-point number") from None
    if not _is_number(value):
        kind, text = called(value), shown(value)
        raise Problem("HP462", f"'{name}' must be a number, not {kind}" + (f": {text}" if text != kind else ""))
    if not is_finite:
        raise Problem("HP462", f"'{name}' is not a finite number: {shown(value)}")
    return value  # type: ignore[no-any-return]
