"""The objects of a program as reports show them, made from its steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from hipplan.kinds.allocation.live import CreateAllocation, ImportAllocation
from hipplan.kinds.lives import lies
from hipplan.kinds.mapping.live import Map, Rights, SetAccess
from hipplan.kinds.reservation.live import Reserve, ReserveBeside
from hipplan.language.host import HOST
from hipplan.language.model import Attached
from hipplan.program import steps
from hipplan.program.backups import Backup
from hipplan.program.by_name import ByName
from hipplan.program.chunk_runs import ChunkRun
from hipplan.program.count_runs import CountRun
from hipplan.program.facts import makers_of
from hipplan.program.numbered import OF_COUNT, OF_MEMORY, stem_of
from hipplan.program.regions import PlacedRegion, mapping_of, memory_of
from hipplan.program.resources import Access, Resource, right_attached
from hipplan.program.runs import Run, plain, runs
from hipplan.program.series import segments
from hipplan.program.steps import CPU_ORDINAL


def resources_of(
    all_steps: Sequence[steps.Step],
    regions: Mapping[str, PlacedRegion],
    devices: Mapping[str, int],
    sealed: Container[str] = (),
    sleeping: Sequence[steps.Step] = (),
    backups: Mapping[str, Backup] | None = None,
    attached: Mapping[str, Attached] | None = None,
    rights: Mapping[str, SetAccess] | None = None,
) -> tuple[Resource, ...]:
    """In the order of the steps. devices: the plan's names -> ordinals. sealed: mappings. sleeping, backups, attached:
    as of the program. rights: where these are not all steps, what gives mappings their rights; then all that is
    wanted of sleeping memory is among the steps."""
    asleep = places_asleep(sleeping, backups) if backups else {}
    there = (*all_steps, *sleeping) if rights is None else all_steps
    inventory = _Inventory(there, regions, devices, sealed, asleep, attached or {}, rights)
    return tuple(inventory.resources())


def without_runs(programs: Iterable[Sequence[steps.Step]], is_wanted: Callable[[Run], bool]) -> list[steps.Step] | None:
    """The steps but for those of runs that are not wanted. None: all runs are.

    Where a chunk's memory is in a run and its mapping is written out, or the reverse, the region's runs stay; and where
    a written-out mapping maps one of a count, that of the count."""
    parts = [*chain.from_iterable(map(segments, programs))]
    if all(is_wanted(part) for part in parts if isinstance(part, Run)):
        return None
    single = [step for part in parts if not isinstance(part, Run) for step in part]
    memory = {step.name for step in single if step.makes == "allocation"}
    mapped = {step.allocation for step in single if isinstance(step, Map)}
    regions = {name.partition(OF_MEMORY)[0] for name in memory ^ mapped}
    counts = {stem[0] for stem in map(stem_of, mapped - memory) if stem is not None and stem[0][1] == OF_COUNT}

    def stays(run: Run) -> bool:
        if isinstance(run, ChunkRun):
            return run.region in regions
        return isinstance(run, CountRun) and run.stem in counts

    return [*chain.from_iterable(part for part in parts if not isinstance(part, Run) or is_wanted(part) or stays(part))]


def places_asleep(sleeping: Sequence[steps.Step], backups: Mapping[str, Backup]) -> Mapping[str, str]:
    """Sleeping allocation -> where its bytes are. sleeping, backups: of a program."""
    of_runs = [(run, _Where(backups)) for _, run in runs(sleeping) if run.makes == "allocation"]
    known = {name: backups[name].to for name in sleeping_memory(plain(sleeping))}
    return ByName(known, of_runs) if of_runs else known


class NamesAsleep(Container[object]):
    """The names of what sleeps, and of ranges in which something does. They are found without a list of all objects."""

    def __init__(
        self,
        sleeping: Sequence[steps.Step],
        reservations: Mapping[str, steps.Step],
        regions: Mapping[str, PlacedRegion],
    ) -> None:
        """All of these are of the program."""
        self._made = makers_of(sleeping)
        ranges = {step.reservation for step in plain(sleeping) if isinstance(step, Map)}
        ranges |= {run.of for _, run in runs(sleeping) if run.makes == "mapping"}
        besides = (reservations.get(name) for name in ranges)
        self.ranges = frozenset(ranges | {step.follows for step in besides if isinstance(step, ReserveBeside)})
        first_asleep = (regions[name] for name in ranges & regions.keys() if memory_of(name, 0) in self._made)
        self._tensors = {tensor.name for region in first_asleep for tensor in region.tensors}

    def __contains__(self, name: object) -> bool:
        return name in self.ranges or name in self._tensors or name in self._made


class _Where:
    """Where the bytes of a run's allocations are."""

    def __init__(self, backups: Mapping[str, Backup]) -> None:
        self._backups = backups

    def __call__(self, run: Run, number: int, /) -> str:
        return self._backups[run.name_of(number)].to


def sleeping_memory(sleeping: Iterable[steps.Step]) -> list[str]:
    """The sleeping allocations. sleeping: of a program."""
    return [step.name for step in sleeping if step.owns_memory]


def region_resources(
    placed: PlacedRegion,
    rights_of: Callable[[str], Rights],
    devices: Mapping[str, int],
    sealed: Container[str],
    attached: Mapping[str, Attached],
) -> Iterator[Resource]:
    """A region that is awake, and its tensors. rights_of: of a mapping. The others: as of resources_of()."""
    name = placed.region.name
    names = device_names(devices)
    given = {device: rights_of(mapping_of(name, number)) for device, number in placed.chunk_of_each_device().items()}
    access = {device: tuple((names[who], right) for who, right in rights) for device, rights in given.items()}
    return placed.resources(access, attached.get(name, "r"), sealed=mapping_of(name, 0) in sealed)


def device_names(devices: Mapping[str, int]) -> dict[int, str]:
    """Ordinal -> the name in the plan."""
    return {ordinal: name for name, ordinal in devices.items()} | {CPU_ORDINAL: HOST}


class _Inventory:
    def __init__(
        self,
        all_steps: Sequence[steps.Step],
        regions: Mapping[str, PlacedRegion],
        devices: Mapping[str, int],
        sealed: Container[str],
        asleep: Mapping[str, str],
        attached: Mapping[str, Attached],
        rights: Mapping[str, SetAccess] | None,
    ) -> None:
        self.steps = all_steps
        self.regions = regions
        self.sealed = sealed
        self.asleep = asleep
        """Allocation -> where its bytes are."""
        self.attached = attached
        self.devices = devices
        self.names = device_names(devices)
        self._rights: Mapping[str, SetAccess] = (
            {step.name: step for step in all_steps if type(step) is SetAccess} if rights is None else rights
        )
        self.beside = {step.name: step for step in all_steps if type(step) is ReserveBeside}
        self.more: Counter[str] = Counter()
        """Reservation -> bytes of addresses that growing added behind it."""
        for step in self.beside.values():
            self.more[step.follows] += step.size
        self.holder: dict[str, str] = {}
        """Allocation -> the device it is on."""
        self._access: dict[Rights, Access] = {(): ()}

    def resources(self) -> Iterator[Resource]:
        """The program's objects."""
        for step in self.steps:
            if step.makes:
                yield from _SPECIAL.get(step.makes, _Inventory.other)(self, step)

    def rights_of(self, mapping: str) -> Rights:
        step = self._rights.get(mapping)
        return () if step is None else step.rights

    def access(self, mapping: str) -> Access:
        """A mapping's access. Cached, because thousands of mappings share the same tuple."""
        given = self.rights_of(mapping)
        if given not in self._access:
            self._access[given] = tuple((self.names[who], right) for who, right in given)
        return self._access[given]

    def allocation(self, step: CreateAllocation | ImportAllocation) -> Iterator[Resource]:
        device = HOST if step.is_on_host else getattr(step, "holder", "") or self.names[step.device]
        self.holder[step.name] = device
        yield Resource(
            name=step.name,
            kind="allocation",
            device=device,
            asked=step.asked,
            size=step.size,
            imported=step.is_import,
            asleep=self.asleep.get(step.name, ""),
        )

    def reservation(self, step: Reserve) -> Iterator[Resource]:
        if step.name in self.regions:
            placed = self.regions[step.name]
            asleep = self.asleep.get(memory_of(step.name, 0), "")
            made = region_resources(placed, self.rights_of, self.devices, self.sealed, self.attached)
            yield from (replace(resource, asleep=asleep) for resource in made) if asleep else made
            return
        more = self.more[step.name]
        asked, size = step.asked + more, step.size + more
        yield Resource(name=step.name, kind="reservation", device="", asked=asked, size=size)

    def mapping(self, step: Map) -> Iterator[Resource]:
        beside = self.beside.get(step.reservation)
        yield Resource(
            name=step.name,
            kind="mapping",
            device=self.holder[step.allocation],
            asked=step.asked,
            size=step.size,
            access=self.access(step.name),
            attached=right_attached(self.attached, step.name, step.reservation),
            sealed=step.name in self.sealed,
            asleep=self.asleep.get(step.allocation, ""),
            inside=step.reservation if beside is None else beside.follows,
            offset=step.offset if beside is None else beside.at + step.offset,
            memory=step.allocation,
        )

    def other(self, step: Any) -> Iterator[Resource]:
        """A peer link, a stream or a buffer."""
        of_host = lies(step.makes) == "host"
        device = self.names[step.device]
        size = getattr(step, "size", 0)
        yield Resource(
            name=step.name,
            kind=step.makes,
            device=HOST if of_host else device,
            pinned_with=device if of_host else "",
            asked=size,
            size=size,
            read_only=getattr(step, "read_only", False),
        )


_SPECIAL: dict[str, Any] = {
    "allocation": _Inventory.allocation,
    "reservation": _Inventory.reservation,
    "mapping": _Inventory.mapping,
}
"""By what a step makes."""
