"""The program: the compiler's result, with the steps in order and views of the objects that they make."""

from __future__ import annotations

import weakref
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, count
from typing import Any, cast

from hipplan.errors import Diagnostic
from hipplan.files.working_folder import Folder
from hipplan.kinds.allocation.live import CreateAllocation
from hipplan.kinds.mapping.live import Map, SetAccess
from hipplan.kinds.reservation.live import Reserve
from hipplan.language.model import Attached
from hipplan.language.rank import Rank
from hipplan.machines.machine import Machine
from hipplan.notebooks import InNotebooks
from hipplan.program.access_runs import that_differ
from hipplan.program.backups import Backup
from hipplan.program.chunk_runs import ChunkRun, loose_chunks
from hipplan.program.content_steps import ContentStep
from hipplan.program.facts import (
    NumberKey,
    descriptors_of,
    makers_of,
    number_key,
    numbers_of,
    owners_by_name,
    owners_of,
    range_sizes_of,
    rights_by_mapping,
    single_steps,
    slots_of,
)
from hipplan.program.homes import Homes
from hipplan.program.inventory import NamesAsleep, resources_of, without_runs
from hipplan.program.layered import layered
from hipplan.program.mapped_runs import MappedRun
from hipplan.program.memo import keep, kept
from hipplan.program.origin import Given, HasOrigin, Origin
from hipplan.program.regions import PlacedRegion, SharedRegion, memory_of, numbers_in
from hipplan.program.resources import Resource
from hipplan.program.runs import Run, alike, plain, runs, without_contents
from hipplan.program.series import Series
from hipplan.program.steps import Step
from hipplan.program.taking import sums, taken_by

_ALWAYS = frozenset({"makers", "slots", "owners", "taken", "range_sizes", "loose_chunks"})
"""Facts about all steps that every change needs."""
_FACTS = (*_ALWAYS, "rights", "numbers", "bindings", "contents")
"""All that are carried on."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Program(HasOrigin, InNotebooks):
    """A plan made concrete for one machine. Deterministic: the same plan and machine give an equal program."""

    name: str
    source: str
    """The document's name in messages."""
    working_folder: Folder | None = field(default=None, compare=False)
    """That in which its plan was loaded: in it the paths of its contents begin. None: in that of who opens them."""
    digest: str
    machine: str
    devices: dict[str, int]
    """The plan's device names -> ordinals."""
    selectors: dict[str, str]
    """The plan's device names -> how the device was chosen, in words."""
    current_device: int = 0
    """The ordinal that `current: true` selectors mean, in updates of its layout too."""
    variables: dict[str, Any] = field(default_factory=dict)
    """The values of the plan's variables."""
    open_sizes: Mapping[str, str] = field(default_factory=dict)
    """Regions and buffers whose size the plan leaves open, and was decided for the machine -> what it says."""
    measured: Machine | None = None
    """The machine it is made for."""
    steps: Sequence[Step]
    """All steps, in order: the only place that defines them. Sealed memory with contents is made writable, filled, and
    then sealed (sealing.py)."""
    warnings: tuple[Diagnostic, ...] = ()
    host_visible: frozenset[str] = frozenset()
    """Devices whose memory the CPU may touch through its address."""
    reads_advice: bool = False
    """Advice about managed ranges can be read back. Without driver support (HMM) it succeeds and has no effect."""
    regions: Mapping[str, PlacedRegion] = field(default_factory=dict)
    """The regions by name, for growing."""
    sealed: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    """Mappings that are read-only for now -> the access before: (device name, right)."""
    unwritten: frozenset[str] = frozenset()
    """Mappings that are sealed since their contents were loaded, so that nothing else has written them."""
    attached: Mapping[str, Attached] = field(default_factory=dict)
    """Rights of processes that attach to a holder, by name: of regions and reservations if not r, of mappings if not as
    their reservation's."""
    rank: Rank = field(default_factory=Rank)
    """The rank that this program is for, if the plan is for ranks."""
    plan_of_all: str = ""
    """The digest of everything that is equal in all ranks; empty for a plan without ranks."""
    shared: Mapping[str, SharedRegion] = field(default_factory=dict)
    """Regions of the plan that one rank makes and others map, by name."""
    parts: Mapping[str, int] = field(default_factory=dict)
    """Regions that are other ranks' memory -> the rank (parts.py)."""
    beside: Mapping[str, int] = field(default_factory=dict)
    """Device -> bytes that other ranks of the node take on it. Only ranks that share memory are known."""

    sleeping: Sequence[Step] = ()
    """The steps that made the sleeping memory and mappings, and make them again when they wake (sleeping.py)."""
    backups: Mapping[str, Backup] = field(default_factory=dict)
    """Allocation -> the backup of its bytes while it sleeps, or one kept for the next sleep."""
    away: Mapping[str, str] = field(default_factory=dict)
    """Allocation that sleeps on the host, still mapped -> the device where it wakes (away.py)."""

    def __repr__(self) -> str:
        return f"<hipplan.Program '{self.name}' for {self.machine}: {len(self.steps)} steps>"

    @cached_property
    def nothing(self) -> Program:
        """The empty program, which is the state before an apply."""
        return replace(self, steps=(), regions={}, sealed={}, unwritten=frozenset(), sleeping=(), backups={}, away={})

    @cached_property
    def resources(self) -> tuple[Resource, ...]:
        """The objects as reports show them, made from the steps and regions."""
        return self.of_steps(self.steps)

    @cached_property
    def by_name(self) -> dict[str, Resource]:
        """All objects by name."""
        return {resource.name: resource for resource in self.resources}

    def of_steps(self, steps: Sequence[Step]) -> tuple[Resource, ...]:
        """The objects that some of its steps make, and those that sleep."""
        return resources_of(steps, self.regions, self.devices, self.sealed, self.sleeping, self.backups, self.attached)

    @cached_property
    def outer(self) -> tuple[Resource, ...]:
        """The objects as reports show them, but for the chunks of runs: regions, their tensors and all others."""
        return self.objects_of(lambda run: not isinstance(run, ChunkRun))

    def objects_of(self, is_wanted: Callable[[Run], bool]) -> tuple[Resource, ...]:
        """The objects as reports show them, of the runs that are wanted and of all other steps. More may stay: see
        without_runs()."""
        some_steps = without_runs((self.steps, self.sleeping), is_wanted)
        if some_steps is None:
            return self.resources
        of_sleeping: Any = rights_by_mapping(self.sleeping)
        rights: Mapping[str, SetAccess] = ChainMap(cast(Any, self.rights), of_sleeping)
        return resources_of(
            some_steps, self.regions, self.devices, self.sealed, self.sleeping, self.backups, self.attached, rights
        )

    def with_steps(self, other: Mapping[int, Step]) -> Program:
        """The program with other steps at these numbers."""
        return replace(self, steps=Series(self.steps).with_changed(dict(other)))

    @cached_property
    def rights(self) -> Mapping[str, SetAccess]:
        """The step that gives a mapping its rights, by the mapping's name."""
        return rights_by_mapping(self.steps)

    @cached_property
    def numbers(self) -> Mapping[NumberKey, int]:
        """The number of each step that makes an object, and of each that gives a mapping its rights."""
        return numbers_of(self.steps)

    @cached_property
    def asleep(self) -> dict[str, str]:
        """Sleeping allocations, mappings, regions and tensors -> where their bytes are (backups.py)."""
        there = (resource for resource in self.resources if resource.asleep)
        return {resource.name: resource.asleep for resource in there} if self.sleeping else {}

    @cached_property
    def names_asleep(self) -> NamesAsleep:
        """The names of what sleeps, and of ranges in which something does."""
        return NamesAsleep(self.sleeping, self.reservations, self.regions)

    def sleeps(self, name: str) -> bool:
        """Whether an object sleeps, or something in it."""
        return bool(self.sleeping) and name in self.names_asleep

    def is_away(self, name: str) -> bool:
        """Whether an object, or something in it, sleeps on the host, still mapped."""
        if not self.away:
            return False
        if name in self.away or name in self._names_away:
            return True
        chunk = numbers_in(name)  # its mapping may be in a run
        return chunk is not None and chunk.last is None and memory_of(chunk.of, chunk.first) in self.away

    @cached_property
    def _names_away(self) -> frozenset[str]:
        inside = (
            (resource.name, resource.inside, resource.memory)
            for resource in self.outer
            if (resource.memory or resource.name) in self.away
        )
        regions = self.away.regions if isinstance(self.away, Homes) else ()
        return frozenset(chain(regions, (name for names in inside for name in names if name)))

    @cached_property
    def contents(self) -> tuple[ContentStep, ...]:
        """The steps that fill memory."""
        return cast("tuple[ContentStep, ...]", tuple(step for _, step in self.single if step.is_content))

    @cached_property
    def making(self) -> Sequence[Step]:
        """All steps but the contents."""
        return without_contents(self.steps)

    @cached_property
    def reservations(self) -> Mapping[str, Reserve]:
        """The steps that reserve ranges of addresses, by name."""
        return {step.name: step for _, step in self.single if isinstance(step, Reserve)}

    def mappings(self) -> Iterator[Map]:
        """The steps that map memory."""
        return (step for step in self.steps if isinstance(step, Map))

    def own_memory(self) -> Iterator[CreateAllocation]:
        """The steps that make allocations with memory of this process."""
        return (step for step in self.steps if isinstance(step, CreateAllocation))

    @cached_property
    def bindings(self) -> tuple[Step, ...]:
        """Steps that use what the caller of apply() passes in `bind`."""
        return tuple(step for _, step in self.single if step.passed_as)

    @cached_property
    def makers(self) -> Mapping[str, Step]:
        """The step that makes each object, by the object's name."""
        return makers_of(self.steps)

    @cached_property
    def slots(self) -> Mapping[str, int]:
        """The slot of each object that a step makes, in the snapshots of its layouts."""
        return slots_of(self.steps)

    @cached_property
    def owners(self) -> Mapping[str, int]:
        """Allocation or mapping -> the device whose memory it is, as of facts.Owners."""
        return owners_by_name(self.steps)

    @cached_property
    def taken(self) -> Mapping[int, int]:
        """Ordinal -> bytes that the steps take from that device, CPU_ORDINAL for the host (taking.py)."""
        return taken_by(self.steps, self.measured)

    @cached_property
    def descriptors(self) -> int:
        """File descriptors that its steps take, at most."""
        return descriptors_of(alike(self.steps))

    @cached_property
    def range_sizes(self) -> Mapping[str, int]:
        """Reservation -> the size of each of its mappings; 0 if they differ, or did in a program that this one was made
        from."""
        return range_sizes_of([step for step, _ in alike(self.steps)], {})

    @cached_property
    def loose_chunks(self) -> int:
        """About how many chunks there are to gather (gathering.py). It is found once, growing counts on, and it is 0
        where nobody could gather them."""
        return loose_chunks(self.steps, self.regions)

    def grown(self, more: Sequence[Step], regions: Mapping[str, PlacedRegion], chunks: int = 0) -> Program:
        """The program with more steps at its end, which make memory as growing does: they use no `bind`. regions: all
        of it. chunks: how many of regions are added.

        What is known of all steps is carried on, so that the cost does not depend on their number; but where some of
        the new ones are a run, it is found again when it is asked for.
        """
        new = replace(self, steps=Series(self.steps).with_more(more), regions=regions)
        keep(new, _origin=Origin(weakref.ref(self), is_resized=True, added=more))
        if not isinstance(more, tuple):
            return new
        made = {step.name: step for step in more if step.makes}
        new._carry_on(
            self,
            makers=lambda: layered(self.makers).with_more(made),
            slots=lambda: layered(self.slots).with_more(dict(zip(made, count(len(self.slots))))),
            owners=lambda: layered(self.owners).with_more(owners_of(more, self.owners)),
            taken=lambda: sums(self.taken, taken_by(more, self.measured), 1),
            range_sizes=lambda: range_sizes_of(more, self.range_sizes),
            rights=lambda: layered(self.rights).with_more({**rights_by_mapping(more)}),
            numbers=lambda: layered(self.numbers).with_more({**numbers_of(more, len(self.steps))}),
            loose_chunks=lambda: self.loose_chunks + chunks,
        )
        return new

    def shrunk(self, gone: Sequence[Step], regions: Mapping[str, PlacedRegion], sealed: Mapping[str, Any]) -> Program:
        """The program without some of its steps: those for some mappings, the rights on them, and for allocations and
        added addresses that have no mapping then. They use no `bind` and have no contents. regions, sealed: of it. As
        grown(), it costs what it changes."""
        numbered = {self.numbers[number_key(step)]: step for step in gone}
        numbers = sorted(numbered)
        gone = tuple(numbered[number] for number in numbers)
        steps = Series(self.steps).without(numbers)
        new = replace(self, steps=steps, regions=regions, sealed=sealed)
        made = [step.name for step in gone if step.makes]
        keep(new, _origin=Origin(weakref.ref(self), is_resized=True, gone=gone))
        at_the_end = numbers[0] == len(steps)
        in_regions = all(step.reservation in regions for step in gone if isinstance(step, Map))
        new._carry_on(
            self,
            makers=lambda: layered(self.makers).without(made),
            slots=lambda: layered(self.slots).without(made) if at_the_end else slots_of(steps),
            owners=lambda: layered(self.owners).without(owners_of(gone, self.owners)),
            taken=lambda: sums(self.taken, taken_by(gone, self.measured), -1),
            # Of a reservation, mappings of various sizes may go, and those of one size stay.
            range_sizes=lambda: (
                self.range_sizes if in_regions else range_sizes_of([step for step, _ in alike(steps)], {})
            ),
            rights=lambda: layered(self.rights).without(rights_by_mapping(gone)),
            numbers=lambda: layered(self.numbers).without(numbers_of(gone)) if at_the_end else numbers_of(steps),
        )
        return new

    def remade(self, other: Sequence[Step], **fields: Any) -> Program:
        """The program with other memory: with steps of the same kinds, names and sizes in the place of those that it
        has. other: steps for allocations, all of their mappings and the rights on them. fields: of the new program.

        As grown(), it costs what it changes. comes_from() is false: what changes are the objects, not their number.
        """
        single, in_runs = [*plain(other)], {self.number_of(run): run for _, run in runs(other)}
        before = Series(self.steps)
        steps = before.with_parts(in_runs)
        numbered = {self.numbers[number_key(step)]: step for step in single}
        # The order of its rights depends on where its memory is, so a run of mappings is one of where it was.
        moved = {step.name for step in single if step.owns_memory and step.owner != self.owners[step.name]}
        remapped = {step.name for step in single if isinstance(step, Map) and step.allocation in moved}
        steps = steps.with_changed(numbered, {n for n, step in numbered.items() if step.name in remapped})
        of_runs = (before.parts_between(number, number + len(run)) for number, run in in_runs.items())
        were = Series.joined(([before[number] for number in numbered], *chain.from_iterable(of_runs)))
        new = replace(self, steps=steps, **fields)
        known: dict[str, Callable[[], Any]] = {
            "makers": lambda: layered(self.makers).with_changed({step.name: step for step in single if step.makes}),
            "owners": lambda: layered(self.owners).with_changed(owners_of(single, self.owners)),
            "rights": lambda: layered(self.rights).with_changed({**rights_by_mapping(single)}),
        }
        if in_runs:
            made = {"makers": makers_of, "owners": owners_by_name, "rights": rights_by_mapping}
            known = {name: partial(fact, steps) for name, fact in made.items()}
        taken = sums(sums(self.taken, taken_by(were, self.measured), -1), taken_by(other, self.measured), 1)
        new._carry_on(self, taken=lambda: taken, **known)
        return new

    def number_of(self, run: Run) -> int:
        """The number of the first step of a run. run: of objects that the program has, together or not."""
        return self.numbers[run.name_of(run.numbers.start), False]

    def regiven(
        self, other: Sequence[SetAccess], in_runs: Iterable[tuple[MappedRun, MappedRun]] = (), **fields: Any
    ) -> Program:
        """The program with other rights on mappings that have some. other: their new steps, in any order. in_runs: runs
        of them, each with the same and its new rights. fields: of the new program. Costs these, and a look at runs."""
        numbered = {self.numbers[number_key(step)]: step for step in other}
        of_runs = {self.number_of(now): (was, now) for was, now in in_runs}
        steps = Series(self.steps).with_parts({number: now for number, (_, now) in of_runs.items()})
        new = replace(self, steps=steps.with_changed(numbered), **fields)
        given: dict[int, tuple[Given, Given]] = {n: (self.rights[step.name], step) for n, step in numbered.items()}
        given.update(of_runs)
        keep(new, _origin=Origin(weakref.ref(self), given=tuple(that_differ(given))))
        few = {**rights_by_mapping(other)}
        rights = rights_by_mapping(new.steps) if of_runs else layered(self.rights).with_changed(few)
        new._carry_on(self, rights=lambda: rights)
        return new

    def _carry_on(self, before: Program, **made: Callable[[], Any]) -> None:
        """Take over what is known of the program before: the facts that every change needs, and others which that one
        has. made: makes those that differ."""
        known = kept(before) | _ALWAYS
        facts = [name for name in _FACTS if name in known]
        keep(self, **{name: made[name]() if name in made else getattr(before, name) for name in facts})

    @cached_property
    def single(self) -> tuple[tuple[int, Step], ...]:
        """(number, step) of the steps in no run, but for kinds of which there are thousands."""
        return tuple(single_steps(self.steps))

    def __getstate__(self) -> dict[str, Any]:
        """Pickle only the fields. Cached values are computed again, and some need the compiled part."""
        return {name: value for name, value in vars(self).items() if name in self.__dataclass_fields__}

    def bytes_by_device(self) -> dict[str, int]:
        """Bytes of device memory that the plan takes, by device name: with padding, without imported memory."""
        names = {ordinal: name for name, ordinal in self.devices.items()}
        taken = {names[ordinal]: size for ordinal, size in self.taken.items() if ordinal in names}
        return dict.fromkeys(self.devices, 0) | taken
