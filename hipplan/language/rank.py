"""Which rank of a group a plan is read for: each of them applies its own part of the same document."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_OF_NODE = "first_of_node"
RANKS_MAX = 65536
"""How many ranks a group may have."""


@dataclass(frozen=True, kw_only=True)
class Rank:
    """A rank's place in its group. By itself a process is the only rank there is."""

    rank: int = 0
    ranks: int = 1
    """How many the group has."""
    local_rank: int = 0
    """Of those on the same node."""
    node: int = 0

    @property
    def variables(self) -> dict[str, int]:
        """What $(rank), $(ranks), $(local_rank) and $(node) stand for."""
        return {name: getattr(self, name) for name in VARIABLES}

    def makes(self, spec: object) -> bool:
        """Whether this rank is one that makes an object of the plan."""
        who = getattr(spec, "rank", None)
        return who is None or (self.local_rank == 0 if who == FIRST_OF_NODE else who == self.rank)


VARIABLES = ("rank", "ranks", "local_rank", "node")
