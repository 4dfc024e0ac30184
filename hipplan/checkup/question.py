"""One question of a checkup, and what is in an answer to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from hipplan.checkup.driver import Driver
from hipplan.machines.runtimes import Chosen
from hipplan.units import version_text

MIB = 2**20
GIB = 2**30
Seen = dict[str, Any]


class Release(NamedTuple):
    """Which library answers."""

    kind: str
    """amd, cuda or sim."""
    version: tuple[int, int]

    @property
    def is_hip(self) -> bool:
        """The library is AMD's, or acts as AMD's does."""
        return self.kind != "cuda"


@dataclass(frozen=True)
class Bench:
    """What a question works with."""

    chosen: Chosen
    driver: Driver
    memory: int
    """Bytes that all questions of a part may take at a time."""

    @property
    def devices(self) -> int:
        return self.chosen.runtime.device_count()

    @property
    def release(self) -> Release:
        major, minor, *_ = (int(part) for part in version_text(self.chosen.runtime.version).split("."))
        return Release(self.chosen.kind, (major, minor))

    def reach(self, device: int, owner: int) -> bool:
        return device == owner or self.chosen.runtime.can_access_peer(device, owner)


@dataclass(frozen=True)
class Question:
    """ask: returns what was seen. declared: what the documentation says of a release, by the same keys."""

    name: str
    ask: Callable[[Bench], Seen]
    declared: Callable[[Release], Mapping[str, Any]] = lambda _: {}
    limit_s: float = 30.0


def is_within(value: Any, declared: Any) -> bool:
    """Whether a value is what is declared. A tuple has all values that are."""
    return value in declared if isinstance(declared, tuple) else bool(value == declared)
