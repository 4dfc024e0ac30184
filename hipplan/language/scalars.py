"""Values of a document: whether they contain expressions, how many there are, and conversions from text."""

from __future__ import annotations

import re
from typing import Any

from hipplan.language.budget import LIMITS
from hipplan.language.expression import Scalar, Value
from hipplan.plain import INTEGER_END, number


def size_of(body: Any) -> tuple[int, int]:
    """(number of values, characters of expressions) of a repeated object. Counting stops at a limit, because data from
    Python may contain itself."""
    values, characters, left = 1, 0, [body]
    while left and values <= LIMITS["values"]:
        value = left.pop()
        if isinstance(value, (dict, list, tuple)):
            values += len(value)
            left += value
            left += value.values() if isinstance(value, dict) else ()
        elif isinstance(value, str) and "$(" in value:
            characters += len(value)
    return values, characters


def plain(value: Any) -> bool:
    """Whether nothing in a value needs expansion."""
    return (
        "$(" not in value if value.__class__ is str else value.__class__ is int and -INTEGER_END < value < INTEGER_END
    )


VALUES = "an integer, true, false or text, or a list of those"
"""What a variable may be."""


def is_value(value: Any) -> bool:
    """Whether a variable may be this."""
    items = value if isinstance(value, list) else [value]
    return all(isinstance(item, (int, str)) for item in items)


def like(value: Any, default: Any) -> Value:
    """Convert a text from the command line to the type of the plan's default: a list is written as [a, b] or a,b."""
    if isinstance(default, list) and isinstance(value, str):
        inside = value.strip().removeprefix("[").removesuffix("]")
        value = [item.strip().strip("'\"") for item in inside.split(",")] if inside.strip() else []
    if isinstance(value, (list, tuple)):
        sample = default[0] if isinstance(default, list) and default else 0
        return [_like_scalar(item, sample) for item in value]
    return _like_scalar(value, default)


def _like_scalar(value: Any, default: Any) -> Scalar:
    if isinstance(value, str) and isinstance(default, bool):
        return {"true": True, "false": False}.get(value, value)
    if isinstance(value, str) and isinstance(default, int) and re.fullmatch(r"-?(0|[1-9][0-9]{0,19})", value):
        return int(value)
    value = number(value)
    return value if isinstance(value, (int, str)) else str(value)
