"""What a holder keeps: memory that was filled once, and what replaced it."""

from __future__ import annotations

import os
import time
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

from hipplan.processes.packets import Message


def identities(descriptors: list[int]) -> list[tuple[int, int]]:
    """What the kernel calls the files behind them; (-1, -1) of one that is closed."""
    return [_identity(descriptor) for descriptor in descriptors]


def _identity(descriptor: int) -> tuple[int, int]:
    try:
        found = os.fstat(descriptor)
    except OSError:
        return -1, -1
    return found.st_dev, found.st_ino


@dataclass(eq=False)
class Generation:
    """Memory that was filled once, and what it is."""

    number: int
    made: Message
    """What the filler says of it: program, plan, digest, machine, runtime, bytes, bytes_by_uuid, writable (names)."""
    descriptors: list[int]
    since: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        self.identities = identities(self.descriptors)

    def close(self) -> None:
        """Lets the memory go, but for what those attached keep."""
        while self.descriptors:
            os.close(self.descriptors.pop())


class Kept:
    """The generation that counts, and those before it whose descriptors somebody still reads."""

    def __init__(self) -> None:
        self.current: Generation | None = None
        self._olds: list[Generation] = []

    def switch(self, made: Message, descriptors: list[int]) -> Generation:
        """What was made counts from here on."""
        old, number = self.current, 1
        if old is not None:
            self._olds.append(old)
            number = old.number + 1
        self.current = Generation(number, made, descriptors)
        return self.current

    def close_olds(self, busy: Container[Generation | None]) -> None:
        """Those attached keep the memory. busy: whose descriptors are being sent."""
        for old in [old for old in self._olds if old not in busy]:
            old.close()
            self._olds.remove(old)

    def close(self) -> None:
        self.close_olds(())
        if self.current is not None:
            self.current.close()


def sums(generations: Iterable[Generation]) -> Mapping[str, int]:
    """UUID of a device -> bytes."""
    found: dict[str, int] = {}
    for generation in generations:
        for uuid, size in generation.made["bytes_by_uuid"].items():
            found[uuid] = found.get(uuid, 0) + size
    return found
