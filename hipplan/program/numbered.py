"""Names of alike objects, which differ in a number."""

from __future__ import annotations

import re
from typing import TypeAlias

from hipplan.program.regions import NUMBER, numbers_in

OF_MEMORY, OF_MAPPING, OF_COUNT = "#", "[", "."
"""The sign before the number of a chunk's memory, of its mapping, and of what `count:` makes."""

Family: TypeAlias = tuple[str, str]
"""(name, sign before the number) that alike objects have in common."""

_COUNTED = re.compile(rf"(.+)\.{NUMBER}").fullmatch


def family_of(name: str) -> tuple[Family, int] | None:
    """The family of a name, and its number there. None: it has no number, or stands for several."""
    if (numbers := numbers_in(name)) is not None:
        sign = OF_MEMORY if numbers.is_memory else OF_MAPPING
        return ((numbers.of, sign), numbers.first) if numbers.last is None else None
    if (match := _COUNTED(name)) is None:
        return None
    return (match[1], OF_COUNT), int(match[2])
