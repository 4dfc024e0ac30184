"""Memory that another rank shares with this one, by that rank's names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hipplan.errors import suggest_or_list
from hipplan.layout.holding import Holding
from hipplan.layout.views import Piece
from hipplan.plain import number, shown
from hipplan.program.parts import name_here


class OfRank:
    """layout.rank(2): regions and tensors of rank 2 that this rank maps, by their names there."""

    def __init__(self, holding: Holding, rank: int) -> None:
        """Raises ValueError for a rank that the group does not have."""
        count = holding.state.program.rank.ranks
        rank = number(rank)
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < count:
            raise ValueError(f"there is no rank {shown(rank)} of {count}")
        self._holding = holding
        self._rank = rank

    def __getitem__(self, name: str) -> Piece:
        """Returns a Piece, as layout[name] does. KeyError: the rank shares no object of this name."""
        here = self._names().get(name)
        if here is None:
            known = suggest_or_list(name, self._names())
            raise KeyError(f"rank {self._rank} shares no '{name}' with this rank{known and f'; {known}'}")
        return self._holding.piece(here)

    def __contains__(self, name: object) -> bool:
        return name in self._names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __repr__(self) -> str:
        return f"<hipplan.OfRank: {len(self._names())} of rank {self._rank}>"

    def _names(self) -> dict[str, str]:
        """Name there -> name here, of regions and tensors."""
        state = self._holding.state
        program = state.program
        if self._rank == program.rank.rank:
            regions = {name: name for name in program.shared if name in program.regions and name not in program.parts}
        else:
            there = {region: name_here(program, self._rank, region) for region in program.shared}
            regions = {region: here for region, here in there.items() if program.parts.get(here) == self._rank}
        names: dict[str, str] = {}
        for region, here in regions.items():
            names[region] = here
            tensors = program.regions[here].tensors
            names |= {region + tensor.name[len(here) :]: tensor.name for tensor in tensors}
        return names


class InGroup:
    """A layout's methods for the other ranks of its group."""

    def __init__(self, holding: Holding) -> None:
        self._holding = holding

    def rank(self, number: int) -> OfRank:
        """The memory that a rank of the layout's group shares with this one, by its names: layout.rank(2)["heap.x"].

        For this rank's own number it is its own memory. The result raises KeyError for names that are not shared.
        Raises ValueError: the group has no such rank.
        """
        return OfRank(self._holding, number)

    @property
    def lost(self) -> Mapping[Any, str]:
        """Rank -> "closed" or "ended" (its process), for lost ranks that share memory with this one.

        For an attached layout: name of the holder -> "closed", "ended" or "replaced", if it no longer keeps the memory.
        Memory that this layout maps stays until it is closed itself.
        """
        ranks, holder = self._holding.ranks, self._holding.holder
        if self._holding.is_forked:
            return {}
        if holder is not None:
            return {holder.name: how} if (how := holder.lost()) else {}
        return dict(ranks.lost()) if ranks is not None else {}

    def barrier(self, timeout: float | None = None) -> None:
        """Waits until all ranks of the layout's group are here; they make the same calls in the same order.

        It orders their Python code, not their devices: synchronise those first. timeout: seconds; default: that of the
        apply. Raises GroupError: a rank does not call it (HP431), or was interrupted in it (HP430); ValueError: the
        layout has no group, or is closed, or the timeout is invalid.
        """
        self._holding.require_open()
        if self._holding.ranks is None:
            raise ValueError("the layout was not applied with a group")
        self._holding.ranks.barrier(timeout)
