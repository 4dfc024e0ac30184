"""The rank that a plan is loaded for. Each rank of a group applies its own part of the same document."""

from __future__ import annotations

from dataclasses import dataclass

from hipplan.plain import number

FIRST_OF_NODE = "first_of_node"
RANKS_MAX = 65536
"""How many ranks a group may have."""


@dataclass(frozen=True, kw_only=True)
class Rank:
    """A rank's place in its group. A single process is the only rank of its group."""

    rank: int = 0
    ranks: int = 1
    """The number of ranks of the group."""
    local_rank: int = 0
    """The rank's number on its node."""
    node: int = 0

    def __post_init__(self) -> None:
        """Raises TypeError, ValueError."""
        for name in VARIABLES:
            given = getattr(self, name)
            if type(number(given)) is not int:
                raise TypeError(f"{name} must be an integer, not {type(given).__name__}")
            if given < 0:
                raise ValueError(f"{name} is counted from 0: it cannot be {given}")
        if self.rank >= self.ranks:  # of a group that is a part of all ranks, local_rank may be more
            raise ValueError(f"there is no rank {self.rank} of {self.ranks}: they are counted from 0")

    @property
    def variables(self) -> dict[str, int]:
        """The values of $(rank), $(ranks), $(local_rank) and $(node)."""
        return {name: getattr(self, name) for name in VARIABLES}

    def makes(self, spec: object) -> bool:
        """Whether this rank is one that makes an object of the plan."""
        who = getattr(spec, "rank", None)
        return who is None or (self.local_rank == 0 if who == FIRST_OF_NODE else who == self.rank)


VARIABLES = ("rank", "ranks", "local_rank", "node")
