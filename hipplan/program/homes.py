"""Where memory wakes that sleeps on the host, still mapped: of alike chunks it is made when it is asked for."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TypeAlias

from hipplan.program.by_name import ByName
from hipplan.program.chunk_runs import MemoryRun

OfRun: TypeAlias = tuple[MemoryRun, Sequence[str]]
"""(memory of alike chunks, the devices where these wake, in turn)."""


class Homes(ByName[str]):
    """Allocation -> the device where it wakes."""

    def __init__(self, single: Mapping[str, str], of_runs: Sequence[OfRun]) -> None:
        """single: of allocations in no run."""
        super().__init__({**single}, [(run, _InTurn(devices)) for run, devices in of_runs])
        self.single = single
        self.of_runs = of_runs

    @classmethod
    def of(cls, homes: Mapping[str, str]) -> Homes:
        """The same, of which some may be together."""
        return homes if isinstance(homes, Homes) else cls(homes, ())

    @property
    def regions(self) -> set[str]:
        """The regions with memory in runs."""
        return {run.region for run, _ in self.of_runs}

    def with_more(self, other: Homes) -> Mapping[str, str]:
        """These and others."""
        return _made({**self.single, **other.single}, [*self.of_runs, *other.of_runs])

    def only(self, memory: Container[str], regions: Container[str]) -> Mapping[str, str]:
        """The homes of some allocations. regions: those of which all chunks in runs are among these."""
        single = {name: home for name, home in self.single.items() if name in memory}
        return _made(single, [of_run for of_run in self.of_runs if of_run[0].region in regions])

    def without(self, other: Homes) -> Mapping[str, str]:
        """All but those of other allocations, as of only()."""
        single = {name: home for name, home in self.single.items() if name not in other.single}
        return _made(single, [of_run for of_run in self.of_runs if of_run[0].region not in other.regions])

    def counted(self) -> Iterator[tuple[str, str, int]]:
        """(device, one of the allocations that wake there, how many are like it) for all."""
        yield from ((home, name, 1) for name, home in self.single.items())
        for run, devices in self.of_runs:
            for place, home in enumerate(devices):
                if chunks := run.chunks[place :: len(devices)]:
                    yield home, run.name_of(chunks.start), len(chunks)


def _made(single: Mapping[str, str], of_runs: Sequence[OfRun]) -> Mapping[str, str]:
    return Homes(single, of_runs) if of_runs else single


class _InTurn:
    def __init__(self, devices: Sequence[str]) -> None:
        self._devices = devices

    def __call__(self, run: MemoryRun, chunk: int, /) -> str:
        return self._devices[(chunk - run.chunks.start) % len(self._devices)]
