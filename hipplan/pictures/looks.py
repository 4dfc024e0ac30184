"""Colours: one for each device, safe for the colour-blind, with text that can be read on each.

Fills are Paul Tol's "light" scheme, made for labelled cells; text on them is dark on a dark page, too. Nothing is said
by colour alone: boxes have labels and titles, rights and signs differ in shape.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from hipplan.language.host import is_host
from hipplan.pictures.scene import CAME, CHANGED, RECREATED, STAYED, WENT
from hipplan.program.program import Program
from hipplan.program.steps import RANK_SIGN

FILLS = ("#77AADD", "#EE8866", "#44BB99", "#EEDD88", "#FFAABB", "#BBCC33", "#99DDFF", "#B8A8D9")
HOST_FILL = "#BFC3C9"
OF_SIGNS = {CAME: "came", CHANGED: "changed", RECREATED: "recreated", WENT: "went", STAYED: "stayed"}
SIGN_FILLS = {"came": FILLS[0], "changed": FILLS[3], "recreated": FILLS[4], "went": FILLS[1]}
OF_HOST, OF_NOBODY = "oh", "neutral"
MIXED = "m"
"""Prefix of the look of memory that several devices hold in turns."""
_MIXED_MAX = 4


class Owners:
    """Maps the holder of memory to the look of its boxes. Each rank has devices of its own."""

    def __init__(self, programs: Collection[Program]) -> None:
        self._several = len(programs) > 1
        names = (self._whole(program, name) for program in programs for name in program.devices)
        self._numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        self.mixtures: dict[str, tuple[int, ...]] = {}
        """Look of memory that several devices hold in turns -> the numbers of their fills."""

    def __len__(self) -> int:
        return len(self._numbers)

    def _whole(self, program: Program, name: str) -> str:
        return name if not self._several or RANK_SIGN in name else f"{name}{RANK_SIGN}{program.rank.rank}"

    def look(self, program: Program, name: str) -> str:
        if is_host(name) or not name:
            return OF_HOST
        whole = self._whole(program, name)
        return f"o{self._numbers.setdefault(whole, len(self._numbers)) % len(FILLS)}"

    def mixed(self, program: Program, names: Iterable[str]) -> str:
        """The look of memory that several devices hold."""
        looks = list(dict.fromkeys(self.look(program, name) for name in names))
        if len(looks) == 1:
            return looks[0]
        numbers = tuple(int(look[1:]) for look in looks[:_MIXED_MAX] if look != OF_HOST)
        look = MIXED + "-".join(map(str, numbers))
        self.mixtures[look] = numbers
        return look
