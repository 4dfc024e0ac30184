"""The change from one program to another: what stays, and the steps for the rest. Plain data."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field, replace
from functools import cached_property
from itertools import chain

from hipplan.kinds.allocation.live import CopyBytes
from hipplan.kinds.lives import BUFFERS
from hipplan.kinds.mapping.live import ChangeAccess, SetAccess
from hipplan.program import steps
from hipplan.program.content_steps import ContentStep
from hipplan.program.facts import made_slots
from hipplan.program.numbered import outer_name
from hipplan.program.program import Program
from hipplan.program.runs import Run, in_parts, plain, runs
from hipplan.program.series import Parts, Series, segments
from hipplan.program.steps import Key
from hipplan.program.touched import Touched, touched

_IN_RUNS = frozenset({"allocation", "mapping", *BUFFERS})
"""The kinds of objects that may be made in a run."""


class KeysOf(Set[Key]):
    """The keys of a program, computed on demand."""

    def __init__(self, program: Program, without: Sequence[steps.Step] = ()) -> None:
        """without: steps whose keys are left out."""
        self._program = program
        self._without = without

    @cached_property
    def _all(self) -> frozenset[Key]:
        keys = frozenset(key for step in self._program.steps if (key := step.key) is not None)
        return keys - self._left_out

    def __contains__(self, key: object) -> bool:
        if isinstance(key, tuple) and len(key) == 2:  # it has the name: no list of all is needed
            step = self._program.makers.get(key[1])
            return step is not None and step.key == key and key not in self._left_out
        return key in self._all

    @cached_property
    def _left_out(self) -> frozenset[Key | None]:
        return frozenset(step.key for step in self._without)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)


class AndEqual(Set[Key]):
    """Keys, and those of what a change is not about."""

    def __init__(self, keys: Set[Key], part: Touched) -> None:
        self.keys = keys
        self._part = part

    def __contains__(self, key: object) -> bool:
        if key in self.keys:
            return True
        return isinstance(key, tuple) and self._part.leaves_out(*key[:3])

    def __iter__(self) -> Iterator[Key]:
        return (key for step in self._part.whole[1].steps if (key := step.key) in self and key is not None)

    def __len__(self) -> int:
        return len(self.keys) + len(self._part)

    def slots(self) -> Iterator[tuple[int, int, int]]:
        """What Touched.slots() yields."""
        return self._part.slots()


@steps.step_data
class Change:
    """The change from `old` to `new`, as steps in their order."""

    old: Program
    new: Program
    """The resulting program; a reservation that stays keeps its old size."""
    additions: Sequence[steps.Step]
    """Steps of `new` that only make objects, so that a roll back leaves everything unchanged."""
    changes: Sequence[steps.Step]
    """Steps that alter existing objects, and steps that depend on those."""
    gone: Sequence[steps.Step]
    """Steps of `old` whose objects do not stay."""
    released: Sequence[steps.Step]
    """The steps of `gone` whose objects are freed at the end: all but mappings that are unmapped during the change."""
    renamed: Mapping[str, str]
    """Name in `new` -> name in `old`, for objects that stay under another name."""
    kept: Set[Key]
    """The keys of objects that stay."""
    changed: frozenset[str]
    """Names in `new` of objects that stay, with other access or advice."""
    renewed: Sequence[steps.Step] = ()
    """Where nothing else changes: the steps of `new` for memory that is made again, in their order."""
    regiven: Sequence[steps.Step] = field(default=(), compare=False)
    """Where only rights change: the steps of `new` for the mappings with other rights, in their order."""
    links: tuple[steps.Step, ...] = ()
    """Steps before all others, where lowering needs some: new peer links that open mappings of `old`, and what keeps
    these closed. Other peer links are additions."""
    carries: Sequence[steps.Step] = ()
    """Steps between additions and changes that copy bytes; what they make is freed at the end."""
    contents: tuple[ContentStep, ...] = ()
    """Steps that fill new objects, after everything else is made and read back: bytes cannot be rolled back."""
    opened: Program | None = None
    """The program during the contents, if it differs from `new`: what they write is not sealed yet."""
    seals: Sequence[steps.Step] = ()
    """Steps that seal it, the last of all."""

    part: Touched | None = field(default=None, compare=False)
    """What the change is about, if that is not everything."""
    finds_part: bool = field(default=False, compare=False)
    """`part` is not known, because the change was found without a comparison."""
    keeps_views: bool = False
    """Memory is made again where devices may use it as before: their views of it stay, and only the CPU's go."""
    retain: bool | None = None
    """Whether the layout keeps memory of the host that goes, for the next time that some is made. False: it also frees
    what an earlier change has kept. None: it frees this memory, and no other."""
    unmaps: bool = False
    """Mappings that go are unmapped during the change, while that can be undone, not after it."""
    saves: bool = False
    """Contents copy memory that is removed: so they come before the changes, and after the devices are idle."""

    @property
    def about(self) -> Change:
        """The same change without what is equal in both programs, of which there is nothing to say. Where that is not
        known, it is found: a list of the change would take much longer."""
        if not self.finds_part:
            return self.about_as_known
        return replace(self, part=touched(self.old, self.new, frozenset()), finds_part=False).about_as_known

    @property
    def about_as_known(self) -> Change:
        """The same change without what is known to be equal in both programs."""
        if self.part is None or self.part.whole[1] is not self.new:
            return self
        return replace(self, old=self.part.old, new=self.part.new)

    @property
    def filling(self) -> Program:
        """The program during the contents."""
        return self.opened or self.new

    @property
    def all_steps(self) -> Sequence[steps.Step]:
        """All steps in order."""
        first: tuple[Sequence[steps.Step], ...] = (self.links, self.additions)
        if self.saves:
            return Series.joined((*first, self.contents, self.carries, self.changes, self.seals))
        return Series.joined((*first, self.carries, self.changes, self.contents, self.seals))

    @property
    def altering(self) -> Sequence[steps.Step]:
        """The steps between additions and seals that are no contents."""
        return Series.joined((self.carries, self.changes)) if self.carries else self.changes

    @property
    def step_count(self) -> int:
        """The number of all steps, which are not joined for it."""
        parts = (self.links, self.additions, self.carries, self.changes, self.contents, self.seals)
        return sum(map(len, parts))

    @property
    def devices_of_both(self) -> dict[str, int]:
        """The devices to wait for: those of both programs."""
        out = dict(self.new.devices)
        for name, ordinal in self.old.devices.items():
            if ordinal not in out.values():
                out[name if name not in out else f"{name} (before)"] = ordinal
        return out

    @property
    def takes_out(self) -> bool:
        """Whether a mapping is unmapped before the end."""
        return len(self.gone) > len(self.released)

    @property
    def carried(self) -> Set[str]:
        """The allocations that are made again with their bytes."""
        return {step.name for step in self.carries if isinstance(step, CopyBytes)}

    @property
    def spared(self) -> Sequence[steps.Step]:
        """The memory that goes from its place, but that the layout keeps."""
        if not self.retain:
            return ()

        def stay(some_steps: Iterable[steps.Step]) -> Iterator[steps.Step]:
            return (step for step in some_steps if step.is_on_host and not step.is_shareable)

        def in_run(run: Run) -> Sequence[steps.Step]:
            kinds = [step for step, _ in run.alike()]
            stays = [*stay(kinds)]
            return run if len(stays) == len(kinds) else tuple(stay(run)) if stays else ()

        return in_parts(self.gone, stay, in_run)

    @property
    def empty(self) -> bool:
        """Whether the driver has nothing to do."""
        return not (self.links or self.additions or self.changes or self.contents or self.released)

    def kept_slots(self) -> tuple[int, list[int], list[tuple[int, int, int]]]:
        """How many objects stay in their slots, from the first on; the slots of those of them that are made again;
        (new slot, old slot, how many) of other consecutive ones that stay."""
        old, new = self.old.slots, self.new.slots
        if isinstance(self.kept, KeysOf):
            same, *others = _staying([] if self.renewed else made_slots(self.gone, old), len(old))
            return same[2], made_slots(self.renewed, new), others
        kept, equal = (self.kept.keys, self.kept.slots()) if isinstance(self.kept, AndEqual) else (self.kept, ())
        names = (str(key[1]) for key in kept if key[0] in _IN_RUNS)
        near = chain.from_iterable(_with_runs_of(names, self.about_as_known.new)) if kept else ()
        stays = (step.name for step in near if step.key in kept)
        return 0, [], [*((new[name], old[self.renamed.get(name, name)], 1) for name in stays), *equal]

    def to_read_back(self, program: Program) -> Sequence[steps.Step]:
        """Steps that describe everything touched, to be read back. program: `filling`, and at the end `new`."""
        if self.renewed or self.regiven:
            return self.renewed or self.regiven
        made = {*plain(self.additions), *plain(self.changes)}
        whole = {id(run) for _, run in runs(self.additions)}
        names = {step.name for step in made}  # they are compared first: the hash of a step is slow
        touched = self.changed.union(step.name for step in self.seals)
        everything = self.about_as_known.new if program is self.new else program
        touched_steps: Parts[steps.Step] = Parts()
        for segment in _with_runs_of(chain(touched, names), everything, whole):
            is_whole = id(segment) in whole
            named = () if is_whole else [s for s in segment if s.name in touched or s.name in names]
            touched_steps.extend(segment if is_whole else [s for s in named if s.name in touched or s in made])
        silent = [s.name for s in plain(self.changes) if isinstance(s, ChangeAccess)]
        read_back = touched_steps.series()
        with_access = {step.name for step in plain(read_back) if isinstance(step, SetAccess)}
        more = [SetAccess(name, None, rights=()) for name in silent if name not in with_access]
        return read_back.with_more(more) if more else read_back


def _with_runs_of(names: Iterable[str], program: Program, whole: Container[int] = ()) -> Sequence[Sequence[steps.Step]]:
    """The steps of a program by segments, but for runs in which none of these objects is, nor near. whole: the ids of
    other runs that are wanted."""
    parts = segments(program.steps)
    if not any(isinstance(part, Run) for part in parts):
        return [*parts]
    near: set[str] = set()
    for name in names:
        near |= {outer_name(name), name.rpartition(".")[0]}
    return [p for p in parts if not isinstance(p, Run) or id(p) in whole or p.of in near]


def _staying(gone: Sequence[int], count: int) -> Iterator[tuple[int, int, int]]:
    """(slot, slot before, how many) of the objects that stay, from the first on; more may come behind them. gone: the
    slots of the others in their order. count: of all objects before."""
    after = 0
    for number, slot in enumerate((*gone, count)):
        if slot > after or not number:
            yield after - number, after, slot - after
        after = slot + 1
