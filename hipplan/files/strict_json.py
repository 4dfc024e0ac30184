"""JSON as the standard has it (RFC 8259): no NaN and no infinity, which Python's own module writes and reads."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn

FORMAT_VERSION = 1
"""The version of all that hipplan prints, answers and records. It grows when a key changes its meaning or goes away."""


_LINE = json.JSONEncoder(allow_nan=False)


def dumps(data: Any, **how: Any) -> str:
    """Writes JSON as json.dumps does. Raises ValueError for a number that JSON does not have."""
    return json.dumps(data, allow_nan=False, **how)


def pieces(data: Mapping[str, Any]) -> Iterator[str]:
    """A document in pieces of text, each item of its lists on a line of its own.

    json itself indents in Python, at a tenth of the speed, and a list of thousands need not be there as text at once.
    """
    begin = "{\n  "
    for key, value in data.items():
        yield f"{begin}{dumps(key)}: "
        begin = ",\n  "
        if isinstance(value, Iterator):
            before = "["
            for item in value:
                yield f"{before}\n    {_LINE.encode(item)}"
                before = ","
            yield "\n  ]" if before == "," else "[]"
        else:
            yield dumps(value)
    yield "\n}\n"


def within(text: Iterable[str], length: int) -> list[str] | None:
    """The pieces of a text of at most so many characters. None if it is longer; then it is not read to its end."""
    kept, left = [], length
    for piece in text:
        left -= len(piece)
        if left < 0:
            return None
        kept.append(piece)
    return kept


def document(indent: int | None = 2, **keys: Any) -> str:
    """hipplan's output for programs: `format_version`, then these keys."""
    return dumps({"format_version": FORMAT_VERSION, **keys}, indent=indent)


def loads(text: str | bytes, **how: Any) -> Any:
    """Reads JSON as json.loads does. Raises ValueError for a number that no float holds, or that JSON does not have."""
    return json.loads(text, parse_int=_int, parse_float=_float, parse_constant=_refused, **how)


def loads_of_others(text: str) -> Any:
    """Reads what another program wrote as JSON: NaN, infinities and numbers that no float holds are floats, too."""
    return json.loads(text, parse_int=lambda digits: int(digits) if len(digits) <= _FITS else float(digits))


_FITS = 300
"""Digits of a number that a float holds."""


def _int(text: str) -> int:
    if len(text) > _FITS:
        _float(text)  # code that shows or divides it needs one
    return int(text)


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        _refused(text)
    return number


def _refused(text: str) -> NoReturn:
    raise ValueError(f"{text[:40]} is not a representable number")
