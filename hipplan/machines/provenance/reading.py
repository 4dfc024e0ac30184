"""Reading facts that may not be there: the value, or null and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class FactReading:
    """Collects why facts could not be read."""

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}
        """Key of a fact -> why it is null."""

    def fact(self, key: str, read: Callable[[], Any], why: str) -> Any:
        """What read() returns; None if that is nothing, for the reason `why`, or if it raises, for that reason."""
        try:
            value = read()
        except Exception as error:  # a library of a driver may raise whatever it likes
            self.reasons[key] = f"{type(error).__name__}: {error}"[:200]
            return None
        if value in (None, "", [], {}):
            self.reasons[key] = why
            return None
        return value
