"""Arguments of HIP calls by chance: mostly good ones."""

from __future__ import annotations

import random
from typing import Any

PIECE, PAGE = 2 << 20, 4096
HUGE = 1 << 50
SLOTS = {
    "reservation": ["r0", "r1"], "handle": ["h0", "h1", "h2", "h3"], "piece": ["m0", "m1", "m2", "m3"],
    "device": ["b0", "b1", "b2"], "managed": ["g0", "g1"], "pinned": ["p0", "p1"], "registered": ["x0", "x1"],
    "stream": ["s0", "s1"], "event": ["e0", "e1"], "descriptor": ["f0"],
}  # fmt: skip
BUFFERS = SLOTS["device"] + SLOTS["managed"] + SLOTS["pinned"] + SLOTS["registered"]
MEMORY = BUFFERS + SLOTS["piece"]
SIZES = [1, PAGE - 1, PAGE, PAGE + 1, PIECE, PIECE, PIECE, 2 * PIECE]
BAD_SIZES = [0, 0, PIECE + 1, 3 * PIECE, HUGE, 2**63, 2**64 - 1]
DEVICES = [0, 0, 0, 1, 1, 1, 2]
BAD_DEVICES = [-1, -2, 3, 9, 2**31 - 1]


class Chooser:
    """Arguments for one sequence."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.any = self.random.choice

    def mostly(self, good: list[Any], bad: list[Any], odds: float = 0.9) -> Any:
        return self.any(good if self.random.random() < odds else bad)

    def size(self) -> int:
        return int(self.mostly(SIZES, BAD_SIZES))

    def device(self, odds: float = 0.9) -> int:
        return int(self.mostly(DEVICES, BAD_DEVICES, odds))

    def flags(self) -> int:
        return int(self.mostly([0], [1, 2, 0x80000000]))

    def slot(self, kind: str) -> str:
        return str(self.any(SLOTS[kind]))

    def handle(self) -> Any:
        return self.mostly([["at", self.slot("handle"), 0]], [None])

    def stream(self) -> Any:
        return self.any([None, None, None, ["at", "s0", 0], ["at", "s1", 0], 1, 2])

    def event(self) -> Any:
        return self.mostly([["at", self.slot("event"), 0]], [None])

    def offset(self) -> int:
        return int(self.any([0, 0, 0, 0, 1, PAGE, PIECE // 2, PIECE - 1]))

    def memory(self, among: list[str] = MEMORY) -> Any:
        """An address, most often the start of something."""
        usual = ["at", self.any(among), 0]
        odd = self.any(
            [
                ["at", self.any(MEMORY + SLOTS["reservation"]), self.offset()],
                None,
                ["host", 0],
                ["wild", "low"],
                ["wild", "split"],
                ["wild", "last"],
            ]
        )
        return self.mostly([usual], [odd], 0.75)

    def place(self) -> tuple[Any, int]:
        """Where a copy goes, and bytes that often fit."""
        return self.any([(self.memory(), self.size()), (["host", self.any([0, 0, PAGE, 1])], self.size())])

    def prop(self) -> Any:
        location = self.mostly([1], [0, 2, 3, 4, 77], 0.85)
        return self.mostly(
            [
                [
                    "prop",
                    self.mostly([1], [0, 2, 0x40000000, 77]),
                    self.mostly([0, 1, 1], [2, 4, 8, 77]),
                    location,
                    self.device(),
                ]
            ],
            [None],
            0.97,
        )

    def rights(self) -> Any:
        def one() -> list[int]:
            return [self.mostly([1], [0, 2, 3, 4, 77]), self.device(), self.mostly([0, 1, 3, 3, 3], [2, 4, 8, -1])]

        return ["access", [one() for _ in range(self.any([1, 1, 1, 2, 2, 3]))]]

    def location(self) -> Any:
        return self.mostly([["location", self.mostly([1], [0, 2, 3, 4, 77]), self.device()]], [None], 0.96)

    def out(self, kind: str) -> Any:
        return self.mostly([["out", kind]], [None], 0.97)


def names(text: str) -> list[str]:
    return text.split()
