"""Cuts memory into pieces so that HIP 7.0 to 7.2 can give rights to it. Pure.

On these releases hipMemSetAccess adds up the sizes of a range's pieces in the order of heap addresses, which is
unpredictable, and refuses a size that equals no such sum (ROCm/rocm-systems 2516, 2667, 6977). Two calls are accepted
in every order: for one piece of a range whose pieces all have one size, and for everything that is mapped in a range.

So a range of unequal mappings gets its rights in one call where they are equal and there is no hole; otherwise its
memory is cut into pieces of one size. If neither is possible, the plan or the change is refused. On other releases
programs stay unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace
from itertools import chain, pairwise
from math import gcd

from hipplan.errors import Diagnostic, MachineError
from hipplan.kinds.allocation.live import CreateAllocation, ImportAllocation
from hipplan.kinds.mapping.live import Map, SetAccess
from hipplan.language.findings import in_order
from hipplan.lowering.sure_access import RightsSet, concerned, right_sets
from hipplan.program.change import Change
from hipplan.program.program import Program
from hipplan.program.resources import Access
from hipplan.program.steps import Step
from hipplan.program.upward import upward
from hipplan.units import format_size

MOST, MOST_OF_ALL = 1024, 8192
"""At most so many pieces for ranges that share memory, and for a whole program."""

PIECE_SIGN = "/"
"""Piece 1 of 'weights' is called 'weights/1', and piece 0 'weights'. Names in plans have no such sign."""


def whole_name(name: str) -> str:
    """The plan's name of the object that this is a piece of."""
    return name.partition(PIECE_SIGN)[0] if PIECE_SIGN in name else name


def fitted(
    program: Program, before: Program | None = None, *, as_ordered: bool = False, is_held: bool = False
) -> Program:
    """A program in the pieces that the release of its machine needs, without the plan's regions: they say nothing of
    pieces. The same program if it needs none.

    before: what this made of the program before; its memory stays in the pieces that it has. as_ordered: the steps stay
    in their order. is_held: processes attach to it, with the plan's rights for them. Raises MachineError (HP309): the
    release cannot do it.
    """
    if not concerned(program.measured) or (before is None and not is_uneven(program)):
        return program
    plan = _Arrangement(program, before, is_held)
    if refused := list(plan.refused()):
        raise MachineError(in_order(refused))
    if not (plan.units or plan.together):
        return program
    return replace(program, steps=tuple(plan.steps(as_ordered)), sleeping=tuple(plan.sleeping()), regions={})


def is_uneven(program: Program) -> bool:
    """Whether some reservation has mappings of several sizes."""
    return not all(program.range_sizes.values())


def named(program: Program, names: Set[str]) -> frozenset[str]:
    """These names and the names of their pieces."""
    if not names:
        return frozenset()
    return frozenset(step.name for step in program.steps if whole_name(step.name) in names)


def growth_steps(program: Program, reservations: Iterable[str]) -> dict[str, int]:
    """What the size of more memory for each reservation of a fitted program is a multiple of; 0: it may be any size."""
    maps_of: dict[str, list[Map]] = {name: [] for name in reservations}
    if not concerned(program.measured):
        return dict.fromkeys(maps_of, 0)
    for step in program.mappings():
        if step.reservation in maps_of:
            maps_of[step.reservation].append(step)
    rights = _rights(program)
    return {name: _growth_step(maps, rights) for name, maps in maps_of.items()}


def _growth_step(maps: list[Map], rights: Mapping[str, object]) -> int:
    """What it is for one reservation. maps: all that is mapped there."""
    if len(maps) < 2 or len({step.size for step in maps}) > 1:
        return 0
    whole = not any(PIECE_SIGN in step.name for step in maps)
    return 0 if whole and _is_alike(maps, rights) else maps[0].size


def note(program: Program) -> str:
    """A note for previews on how memory is cut for the release; empty if it is not. program: fitted."""
    pieces = Counter(whole_name(step.name) for step in program.mappings())
    together = {mapping for mapping, step in program.rights.items() if step.together}
    ranges = dict.fromkeys(step.reservation for step in program.mappings() if step.name in together)
    cut = [f"'{name}' is mapped in {count} pieces" for name, count in pieces.items() if count > 1]
    at_once = [f"the mappings of '{name}' get their access in one call" for name in ranges]
    notes = [f"HIP 7.0 to 7.2 needs equal pieces, so {', '.join(cut)}"] * bool(cut)
    notes += [f"HIP 7.0 to 7.2 gives access to unequal mappings only all at once, so {', '.join(at_once)}"] * bool(
        at_once
    )
    return "; ".join(notes)


def _rights(program: Program) -> dict[str, tuple[RightsSet, Access]]:
    """Mapping -> its rights now and when unsealed; without mappings that no device may use."""
    given = right_sets(_there(program))
    return {name: (now, program.sealed.get(whole_name(name), ())) for name, now in given.items()}


def _there(program: Program) -> chain[Step]:
    """The steps of all memory that has its place, though some of it may sleep."""
    return chain(program.steps, program.sleeping)


def _with_attached(mapping: str, rights: tuple[RightsSet, Access], writable: Set[str]) -> object:
    """The same rights, and whether attached processes have write access."""
    has_writers = any(right == "rw" for given in rights for _, right in given)
    return rights, has_writers and whole_name(mapping) in writable


def _is_alike(maps: list[Map], rights: Mapping[str, object]) -> bool:
    """Whether these mappings have no hole between them and equal rights."""
    placed = sorted(maps, key=lambda step: step.offset)
    return len({rights.get(step.name) for step in maps}) == 1 and all(
        piece.offset + piece.size == other.offset for piece, other in pairwise(placed)
    )


class _Arrangement:
    """Decides which memory of a program is cut into which pieces, and which ranges get their rights in one call.

    Memory that sleeps counts as if it were awake, so that it wakes in the pieces in which it fell asleep.
    """

    def __init__(self, program: Program, old: Program | None, is_held: bool) -> None:
        self.program = program
        self._is_held = is_held
        self.rights: dict[str, object] = {**_rights(program)}
        if is_held:
            writable = {resource.name for resource in program.resources if resource.attached == "rw"}
            self.rights = {name: _with_attached(name, given, writable) for name, given in _rights(program).items()}
        self.mapped = {step.name: step for step in _there(program) if isinstance(step, Map)}
        self.ranges: dict[str, list[Map]] = {}
        self.users: dict[str, set[str]] = {}
        """Allocation -> the ranges that it is mapped in."""
        for step in self.mapped.values():
            self.ranges.setdefault(step.reservation, []).append(step)
            self.users.setdefault(step.allocation, set()).add(step.reservation)
        memory = {step.name for step in _there(program) if isinstance(step, CreateAllocation)}
        units = {} if old is None else _units(old)
        self.units = {name: unit for name, unit in units.items() if name in memory}
        """Allocation -> the size of its pieces."""
        self._groups: list[set[str]] = []
        self._grouped: set[str] = set()
        there = _common_sizes(old) if old is not None else {}
        for name, maps in self.ranges.items():
            stays = there.get(name, 0)
            if stays and all(step.size % stays == 0 for step in maps):
                if any(step.size != stays for step in maps):
                    self._cut(name, stays)
            elif self._needs_pieces(maps):
                self._cut(name, 0)
        self.together = {name for name, maps in self.ranges.items() if len(set(self._sizes(maps))) > 1}

    def _needs_pieces(self, maps: list[Map]) -> bool:
        uneven = len({step.size for step in maps}) > 1 and any(step.name in self.rights for step in maps)
        return uneven and not _is_alike(maps, self.rights)

    def _cut(self, name: str, unit: int) -> None:
        """Cut the memory of a range, and of all ranges that share memory with it: they need the same size of pieces."""
        if name in self._grouped:
            return
        group, pending = set(), [name]
        while pending:
            range_name = pending.pop()
            if range_name not in group and (range_name == name or not _is_alike(self.ranges[range_name], self.rights)):
                group.add(range_name)
                pending += [user for step in self.ranges[range_name] for user in self.users.pop(step.allocation, ())]
        maps = [step for number in group for step in self.ranges[number]]
        unit = gcd(unit, *(step.size for step in maps), *(self.units.get(step.allocation, 0) for step in maps))
        self._groups.append(group)
        self._grouped |= group
        self.units |= {step.allocation: unit for step in maps}

    def _sizes(self, maps: Iterable[Map]) -> Iterator[int]:
        """The sizes of the pieces; each size occurs at least once."""
        for step in maps:
            unit = self.units.get(step.allocation, step.size)
            yield min(unit, step.size)
            if step.size > unit and step.size % unit:
                yield step.size % unit

    def refused(self) -> Iterator[Diagnostic]:
        """HP309 for each group of ranges that cannot be cut."""
        made = {s.name: s for s in _there(self.program) if isinstance(s, (CreateAllocation, ImportAllocation))}
        order, total = {name: number for number, name in enumerate(self.ranges)}, 0
        for group in self._groups:
            maps = [step for name in sorted(group, key=order.__getitem__) for step in self.ranges[name]]
            unit = self.units[maps[0].allocation]
            total += (pieces := sum(step.size for step in maps) // unit)
            large = [(step, made[step.allocation]) for step in maps if made[step.allocation].size > unit]
            for step, memory in large:
                if isinstance(memory, ImportAllocation):
                    why = f"'{memory.name}' is imported, so it cannot be cut"
                elif memory.shareable != "none":
                    why = f"'{memory.name}' is shareable, so it cannot be cut"
                elif pieces > MOST:
                    why = f"that would be {pieces} pieces of {format_size(unit)}; the limit is {MOST}"
                elif total > MOST_OF_ALL:
                    why = f"with the other ranges that would be {total} pieces; the limit is {MOST_OF_ALL}"
                else:
                    continue
                yield _refusal(self.program, step, why, ", here or in attached processes," * self._is_held)
                break

    def steps(self, as_ordered: bool) -> list[Step]:
        """All steps after cutting. Ranges that get their rights in one call are mapped upward, unless `as_ordered`."""
        ranges = set[str]() if as_ordered else self.together
        return upward([piece for step in self.program.steps for piece in self._pieces(step)], ranges)

    def sleeping(self) -> Iterator[Step]:
        """The steps that make the sleeping memory again."""
        return (piece for step in self.program.sleeping for piece in self._pieces(step))

    def _pieces(self, step: Step) -> Iterator[Step]:
        if isinstance(step, CreateAllocation):
            for number, _, size in self._parts(step.name, step.size):
                yield replace(step, name=_piece(step.name, number), size=size) if number or size < step.size else step
        elif isinstance(step, Map):
            for number, at, size in self._parts(step.allocation, step.size):
                name, memory = _piece(step.name, number), _piece(step.allocation, number)
                cut = replace(step, name=name, allocation=memory, offset=step.offset + at, size=size)
                yield cut if size < step.size else step
        elif isinstance(step, SetAccess):
            mapped = self.mapped[step.name]
            together = mapped.reservation in self.together
            for number, _, _ in self._parts(mapped.allocation, mapped.size):
                yield replace(step, name=_piece(step.name, number), together=together) if number or together else step
        else:
            yield step

    def _parts(self, allocation: str, size: int) -> Iterator[tuple[int, int, int]]:
        """(number, offset, bytes) of each piece of a range in an allocation, from its first byte on."""
        unit = self.units.get(allocation, size)
        for number, at in enumerate(range(0, size, unit)):
            yield number, at, min(unit, size - at)


def _piece(name: str, number: int) -> str:
    return f"{name}{PIECE_SIGN}{number}" if number else name


def _units(program: Program) -> dict[str, int]:
    """Allocation that is cut -> the size of its pieces."""
    cut = {
        whole_name(step.name)
        for step in _there(program)
        if isinstance(step, CreateAllocation) and PIECE_SIGN in step.name
    }
    return {s.name: s.size for s in _there(program) if isinstance(s, CreateAllocation) and s.name in cut}


def _common_sizes(program: Program) -> dict[str, int]:
    """Reservation -> the size of its pieces, where there are several and all have one."""
    sizes: dict[str, list[int]] = {}
    for step in _there(program):
        if isinstance(step, Map):
            sizes.setdefault(step.reservation, []).append(step.size)
    return {name: lengths[0] for name, lengths in sizes.items() if len(lengths) > 1 and len(set(lengths)) == 1}


def _release(program: Program) -> str:
    return f"HIP {program.measured.hip_version}" if program.measured else "HIP 7.0 to 7.2"


def _refusal(program: Program, step: Map, why: str, where: str) -> Diagnostic:
    return Diagnostic(
        "HP309",
        f"{_release(program)} cannot set the access of '{step.reservation}'",
        step.origin,
        why=f"its mappings differ in size, and have different access{where} or holes between them: "
        f"HIP 7.0 to 7.2 needs pieces of equal size; {why}",
        hint="add chunk: 2MiB to the region, so that its pieces have equal size"
        if step.reservation in program.regions
        else "put each mapping into its own reservation, or make the sizes multiples of a larger common size",
    )


def no_way(step: Step, change: Change) -> Diagnostic:
    """HP309: the release may refuse a step of a change, or its undo."""
    maps = chain(change.new.mappings(), change.old.mappings())
    about = next((map_step for map_step in maps if step.name in (map_step.name, map_step.allocation)), None)
    return Diagnostic(
        "HP309",
        f"{_release(change.new)} cannot change '{about.reservation if about else whole_name(step.name)}' in place",
        (about or step).origin,
        why="during the change or its undo, pieces of different sizes would share a range, and hipMemSetAccess of HIP "
        "7.0 to 7.2 refuses one of them for some orders of heap addresses",
        hint="close the layout and apply the plan, or put the new mapping into its own reservation",
    )
