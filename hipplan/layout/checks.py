"""The check of one value that was read back."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison of desired and current."""

    name: str
    what: str
    desired: str
    current: str

    @property
    def ok(self) -> bool:
        return self.desired == self.current

    def __str__(self) -> str:
        return f"{self.name}: {self.what}: {self.desired}" + ("" if self.ok else f" desired, {self.current} now")
