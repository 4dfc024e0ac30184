"""Values as they stand in a document: what is to be filled in, how much of it there is, and what a text means."""

from __future__ import annotations

import re
from typing import Any

from hipplan.language.budget import LIMITS
from hipplan.language.expression import Value
from hipplan.plain import INTEGER_END, number


def size_of(body: Any) -> tuple[int, int]:
    """Values of something that is repeated, itself included, and characters of its expressions; as far as anybody
    wants to know: data of a program may hold itself."""
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
    """Nothing in it to expand."""
    return (
        "$(" not in value if value.__class__ is str else value.__class__ is int and -INTEGER_END < value < INTEGER_END
    )


def like(value: Any, default: Any) -> Value:
    """A value from the command line is text: it becomes what the plan's own default is."""
    if isinstance(value, str) and isinstance(default, bool):
        return {"true": True, "false": False}.get(value, value)
    if isinstance(value, str) and isinstance(default, int) and re.fullmatch(r"-?[0-9]{1,20}", value):
        return int(value)
    value = number(value)
    return value if isinstance(value, (int, str)) else str(value)
