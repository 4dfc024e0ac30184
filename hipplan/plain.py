"""What Python programs hand over where a plan has a number: NumPy's and others' are plain int and float here."""

from __future__ import annotations

import math
import numbers
import operator
import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

_CALLED = {
    dict: "a mapping",
    list: "a list",
    str: "text",
    int: "an integer",
    float: "a fraction",
    bool: "true or false",
    type(None): "nothing",
}


def number(value: Any) -> Any:
    """Whatever is an integer to Python's protocol as int, a real number as float; all else, bools too, as it is."""
    if value.__class__ in _CALLED or is_bool(value):  # older NumPy gives an index for its own, and a warning
        return value
    try:
        return operator.index(value)
    except TypeError:
        return float(value) if isinstance(value, numbers.Real) else value


def seconds(value: Any, what: str, *, zero: bool = False) -> float:
    """A time to wait. zero: it may be none. Raises TypeError, ValueError."""
    given = number(value)
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise TypeError(f"{what} must be a number of seconds, not {type(given).__name__}")
    if not (0 < given < math.inf or (zero and given == 0)):
        least = "0 seconds or more" if zero else "more than 0 seconds"
        raise ValueError(f"{what} is {least}, not {shown(given)}")
    return float(min(given, SECONDS_MAX))


def is_bool(value: Any) -> bool:
    """Whether a value is True or False, Python's or NumPy's. By name, because NumPy is not always installed."""
    return type(value).__name__ in ("bool", "bool_")


def flag(value: Any, what: str) -> bool:
    """True or False, NumPy's too, or 1 or 0. Raises TypeError."""
    if (isinstance(value, int) or is_bool(value)) and value in (0, 1):
        return bool(value)
    raise TypeError(f"{what} must be True or False, not {type(value).__name__}")


def callback(value: Any, what: str) -> None:
    """Raises TypeError if it can neither be called nor is None."""
    if value is not None and not callable(value):
        raise TypeError(f"{what} must be a function, not {type(value).__name__}")


SECONDS_MAX = 10**9
"""Thirty years; clocks of the system overflow later."""
DIGITS_MAX = 40
INTEGER_END = 10**DIGITS_MAX
"""No number of a document has more digits: 64 bits have 20. Python itself refuses to print one of thousands."""


def shown_number(value: int) -> str:
    """The number as people read it; one that is too long for that by its length."""
    if -INTEGER_END < value < INTEGER_END:
        return f"{value:,}"
    return f"a number of about {value.bit_length() * 30103 // 100_000 + 1:,} digits"


def shown(value: object) -> str:
    """A value of a document for a message, as YAML writes it, cut where it is long."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int) and abs(value) >= INTEGER_END:
        return shown_number(value)
    text = called(value) if isinstance(value, (dict, list, tuple)) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def keys_to(data: Any, path: Sequence[Hashable]) -> str:
    """A path in data as people write it, such as buffers.kv.advice[0]; as far as it leads."""
    joined = ""
    for step in path:
        if isinstance(data, Mapping) and step in data:
            joined += f".{step}"
        elif isinstance(data, (list, tuple)) and isinstance(step, int) and step < len(data):
            joined += f"[{step}]"
        else:
            break
        data = data[step]
    return joined.removeprefix(".")


def counted(number: int, thing: str) -> str:
    """1 tensor, 2 tensors."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def meant_variable(text: str) -> str:
    """A hint for $x and ${x}, which a shell would have, {{ x }} of templates, and calculations; else empty."""
    if match := re.fullmatch(r"\$\{?(\w+)\}?|\{\{ ?(\w+) ?\}\}", text[:80]):
        return f"write $({match[1] or match[2]})"
    return f"write $({text})" if re.fullmatch(r"\w+( ?(\*|//|[-+%]) ?\w+)+", text[:80]) else ""


_ODD_SPACE = re.compile("[\u00a0\u1680\u2000-\u200b\u202f\u205f\u2060\u3000]")


def odd_space(text: str) -> tuple[int, str]:
    """The index of the first space that YAML does not take for one, and a hint about it; -1 and no hint without."""
    match = _ODD_SPACE.search(text)
    if match is None:
        return -1, ""
    name = "no-break space" if match[0] in "\u00a0\u202f" else "character"
    return match.start(), f"type a space in place of the {name} U+{ord(match[0]):04X}"


def called(value: object) -> str:
    """What messages say that a value is, instead of what is wanted."""
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return _CALLED.get(kind, f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}")
