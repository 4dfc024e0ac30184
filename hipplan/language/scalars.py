"""Values of a document: whether they contain expressions, how many there are, and conversions from text."""

from __future__ import annotations

import numbers
import os
import re
from collections.abc import Mapping
from typing import Any

from hipplan.language.budget import LIMITS
from hipplan.plain import INTEGER_END, is_bool, number


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


def as_dict(value: Any) -> Any:
    """A value from Python, with a dict in place of any other mapping."""
    return dict(value) if value.__class__ is not dict and isinstance(value, Mapping) else value


def as_dicts(data: Mapping[str, Any]) -> dict[str, Any]:
    """A document from Python, with dicts in place of other mappings: itself, what its keys have, and each object there.
    Mappings deeper in it are changed when they are reached: it may contain itself."""
    return {
        key: {name: as_dict(inner) for name, inner in value.items()} if isinstance(value, Mapping) else value
        for key, value in data.items()
    }


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


def like(value: Any, default: Any) -> Any:
    """Convert a text from the command line to the type of the plan's default: a list is written as [a, b] or a,b. From
    Python come paths and fractions, too, which become text; other objects stay as they are, and are no values."""
    if isinstance(default, list) and isinstance(value, str):
        inside = value.strip().removeprefix("[").removesuffix("]")
        value = [item.strip().strip("'\"") for item in inside.split(",")] if inside.strip() else []
    if isinstance(value, (list, tuple)):
        sample = default[0] if isinstance(default, list) and default else 0
        return [_like_scalar(item, sample) for item in value]
    return _like_scalar(value, default)


def _like_scalar(value: Any, default: Any) -> Any:
    if isinstance(value, str) and isinstance(default, bool):
        return {"true": True, "false": False}.get(value, value)
    if isinstance(value, str) and isinstance(default, int) and re.fullmatch(r"-?(0|[1-9][0-9]{0,19})", value):
        return int(value)
    value = number(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if is_bool(value):
        return bool(value)
    return str(value) if isinstance(value, numbers.Number) and not isinstance(value, int) else value
