"""Recreates mapped memory under the same addresses. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from hipplan.errors import Diagnostic, MachineError, suggest
from hipplan.kinds.allocation.live import CreateAllocation
from hipplan.kinds.mapping.live import Map, Rights, SetAccess, rights_of
from hipplan.language.host import HOST, NEAR, is_host, node_of, on_node
from hipplan.program import patterns, steps
from hipplan.program.borders import Part, chunks_in, mappings_in
from hipplan.program.carries import carries_of
from hipplan.program.chosen import ChosenChunks, ChosenMemory, chosen_memory, mapped_again, written_out
from hipplan.program.chunk_runs import MappingRun, MemoryRun
from hipplan.program.difference import Difference
from hipplan.program.lookup import region_of
from hipplan.program.on_demand import shortest
from hipplan.program.on_host import lacking, near
from hipplan.program.program import Program
from hipplan.program.refusals import refuse, refuse_piece
from hipplan.program.regions import PlacedRegion, mapping_of, moved
from hipplan.program.renewal import renewal
from hipplan.program.resize import require, require_memory
from hipplan.program.resources import RANGES, Access
from hipplan.program.runs import Run, alike, in_parts, plain
from hipplan.program.sealing import mappings_of, with_access


def remapped(
    program: Program, name: str, *, device: str | None, keep_bytes: bool, part: Part | None = None, retain: bool = False
) -> Difference:
    """The change that puts new memory under the addresses of regions, reservations, mappings or allocations.

    name: of one, or a pattern. device: where the new memory is; None: where the old is. keep_bytes: copy the bytes.
    part: only of this part of each region or reservation; the cost does not depend on a region's other chunks. retain:
    memory of the host that goes is kept for the next time. Raises
    ApplyError (HP420): memory that cannot be recreated, no such device, no such part.
    """
    chosen = _chosen(program, name, part)
    imported = next((step.name for step in plain(chosen.steps) if step.is_import), None)
    if imported is not None:
        raise refuse(f"'{imported}' is imported: it cannot be recreated here")
    again = Again(program, chosen.steps, chosen.steps) if device is None else _moved(program, chosen, device)
    change = made_again(program, again, keep_bytes=keep_bytes)
    return replace(
        change,
        retain=retain or (None if device is None or is_host(device) else False),
        keeps_views=device is not None and change.keeps_views,
    )


class Again(NamedTuple):
    """A program with other memory under the same addresses."""

    program: Program
    was: Sequence[steps.Step]
    """The steps for this memory before: that make it, map it, and give rights on it."""
    now: Sequence[steps.Step]
    """Its steps in this program."""


def made_again(program: Program, again: Again, *, keep_bytes: bool) -> Difference:
    """The change to a program with other memory."""
    change = renewal(program, again.program, again.was, again.now)
    carries = carries_of(change, again.was) if keep_bytes else ()
    return replace(change, carries=carries, keeps_views=_stays_in_reach(again))


def _stays_in_reach(again: Again) -> bool:
    """Whether memory moves to the host or back, no memory moves to another GPU, and each device keeps its rights."""
    made = again.program
    on_host = False
    for step, _ in alike(again.was):
        if step.owns_memory:
            now = made.makers[step.name]
            if step.is_on_host or now.is_on_host:
                on_host = True
            elif step.owner != now.owner:
                return False
        elif isinstance(step, SetAccess):
            given = made.rights.get(step.name)
            rights = dict(given.rights) if given is not None else {}
            if any(right not in rights.get(who, "") for who, right in step.rights if who != steps.CPU_ORDINAL):
                return False
    return on_host


def _chosen(program: Program, pattern: str, part: Part | None) -> ChosenMemory:
    """What a name or pattern means. Raises as remapped()."""
    memory = set[str]()
    numbers: dict[str, list[range]] = {}
    kinds = RANGES if part is not None else (*RANGES, "mapping", "allocation")
    for name in patterns.chosen(program, [pattern], *kinds):
        kind = _require(program, name, *kinds)
        if kind == "region":
            everything = range(len(program.regions[name].chunks))
            numbers[name] = [everything if part is None else chunks_in(program, name, part)]
        elif kind == "allocation":
            memory |= _allocation(program, name)
        elif part is None:
            memory |= {mapping.memory for mapping in mappings_of(program, name)}
        else:
            memory |= {mapping.memory for mapping in mappings_in(program, name, part)}
    return chosen_memory(program, numbers, memory)


def _require(program: Program, name: str, *kinds: str) -> str:
    """Which of these kinds an object is. ApplyError (HP420): its memory cannot be recreated."""
    kind = require(program, name, *kinds)
    require_memory(program, name)
    shared = next(
        (region for region in program.shared if name.startswith((f"{region}[", f"{region}#")) or name == region), ""
    )
    if shared:
        raise refuse(
            f"'{shared}' is mapped by other ranks: its memory cannot move",
            hint="close the layout and apply the plan again",
        )
    return kind


def _allocation(program: Program, name: str) -> set[str]:
    """The allocation with this name. ApplyError (HP420): it is a chunk of a region."""
    if region := region_of(program, name):
        raise refuse_piece(name, region)
    return {name}


def _moved(program: Program, chosen: ChosenMemory, device: str) -> Again:
    """The program with the chosen memory on another device, or on the host."""
    place = on_host(program, chosen, device) if is_host(device) else on_device(program, device)
    regions = {name: _on(program.regions[name], some, place.name) for name, some in chosen.numbers.items()}
    return placed_at(program, chosen, lambda step: place, regions)


class Place(NamedTuple):
    """Where memory moves to."""

    name: str
    """The name of a device of the plan, or of the host."""
    number: int
    """The ordinal, or the NUMA node."""
    location: str


PlaceOf = Callable[[CreateAllocation], Place]
"""Where an allocation moves to."""


def placed_at(
    program: Program, chosen: ChosenMemory, place_of: PlaceOf, regions: Mapping[str, PlacedRegion], **fields: Any
) -> Again:
    """The program with the chosen memory in other places. regions: those of the program with it. fields: of the new
    program."""
    runs: dict[int, Run] = {}
    sealed = {**program.sealed}
    for stretch in chosen.stretches:
        moved_there = _stretch_at(program, stretch, place_of, regions, sealed)
        if moved_there is None:
            return placed_at(program, written_out(program, chosen), place_of, regions, **fields)
        runs |= {id(stretch.memory): moved_there.memory, id(stretch.mapped): moved_there.mapped}
    made = in_parts(chosen.steps, lambda part: _placed(part, place_of), lambda run: runs[id(run)])
    there = program.remade(made, regions={**program.regions, **regions}, sealed=sealed, **fields)
    owned = dict(_to_owner(program.regions, regions, chosen.alone))
    new = _with_owner(there, owned) if owned else there
    now = in_parts(chosen.steps, lambda part: _again(new, part), lambda run: runs[id(run)])
    return Again(new, chosen.steps, now)


def _placed(before: Iterable[steps.Step], place_of: PlaceOf) -> Iterator[steps.Step]:
    """The steps that make objects, with memory in its new place."""
    for step in before:
        if isinstance(step, CreateAllocation):
            place = place_of(step)
            yield step.moved_to(place.number, place.location)
        elif step.makes:
            yield step


def _again(program: Program, before: Iterable[steps.Step]) -> Iterator[steps.Step]:
    """The steps that a program has for the same memory."""
    for step in before:
        if isinstance(step, Map):
            yield from mapped_again(program, step.name)
        elif step.makes:
            yield program.makers[step.name]


def _stretch_at(
    program: Program,
    stretch: ChosenChunks,
    place_of: PlaceOf,
    regions: Mapping[str, PlacedRegion],
    sealed: dict[str, Access],
) -> ChosenChunks | None:
    """Alike chunks in other places, with the rights that they have there. sealed: as of Program, gets those of them
    that are. None: these chunks differ, because nobody has rights before or there, or only some are sealed."""
    memory, mapped = stretch
    names = [f"{memory.region}[{number}]" for number in memory.chunks] if sealed else []
    closed = len(sealed.keys() & {*names})
    if closed not in (0, len(memory.chunks)):
        return None
    was, placed = program.regions[memory.region], regions[memory.region]
    there: list[tuple[CreateAllocation, Rights]] = []
    for number, kind, rights in zip(memory.chunks, memory.kinds, mapped.rights):  # noqa: B905  # there are few kinds
        place = place_of(kind)
        access = _access_there(was, placed, number)
        if access is not None and closed:
            sealed |= dict.fromkeys(names[number - memory.chunks.start :: len(memory.kinds)], access)
            access = _read_only(access)
        given = rights if access is None else rights_of(dict(access), program.devices)
        if access is not None and not (given and rights):
            return None
        there.append((kind.moved_to(place.number, place.location), given))
    many = len(shortest([(replace(kind, name=""), given) for kind, given in there]))
    made = MemoryRun(memory.region, memory.chunks, [kind for kind, _ in there[:many]])
    return ChosenChunks(made, MappingRun(made, mapped.offset, mapped.origin, [given for _, given in there[:many]]))


def on_host(program: Program, chosen: ChosenMemory, device: str) -> Place:
    """Returns the place of chosen memory on the host. Raises ApplyError (HP420), MachineError (HP309)."""
    _require_movable(chosen)
    machine = program.measured
    if device == on_node(NEAR):
        gpus = [program.regions[name].region.gpus[0] for name in chosen.numbers] or list(program.devices)
        device = near(gpus[0], machine, program.devices) if machine is not None else HOST
    node = node_of(device)
    if device != HOST and node is None:
        raise refuse(f"there is no device '{device}'", hint="the host is host, host.near or host.0")
    if machine is not None and (why := lacking(machine, None) or lacking(machine, node)):
        raise MachineError(Diagnostic("HP309", why, hint="sleep() keeps bytes in pinned memory"))
    nodes = [known.node for known in machine.numa_nodes] if machine is not None else []
    if node is not None and nodes and node not in nodes:
        raise refuse(f"there is no NUMA node {node}", hint=f"the machine has {', '.join(map(str, nodes))}")
    return Place(device, node or 0, "host" if node is None else "host_numa")


def on_device(program: Program, device: str) -> Place:
    """Raises ApplyError (HP420): no such device."""
    return Place(device, _ordinal(program, device), "device")


def _require_movable(chosen: ChosenMemory) -> None:
    """Raises ApplyError (HP420) for memory that only a GPU can have."""
    for step, _ in alike(chosen.steps):
        if step.is_for_network:
            why = "it is for network cards, which reach a GPU's memory (rdma: true)"
            raise refuse(f"'{step.name.partition('#')[0]}' cannot move to the host", why=why)


def _ordinal(program: Program, device: str) -> int:
    """The ordinal of a device of the plan. Raises ApplyError (HP420)."""
    if device not in program.devices or steps.RANK_SIGN in device:
        hint = suggest(device, program.devices) or f"the plan has: {', '.join(program.devices)}"
        raise refuse(f"there is no device '{device}'", hint=hint)
    return program.devices[device]


def _to_owner(
    before: Mapping[str, PlacedRegion], now: Mapping[str, PlacedRegion], moved_chunks: Mapping[str, Sequence[int]]
) -> Iterator[tuple[str, Access]]:
    """(mapping, who may use it) of moved chunks whose access depends on where they are. before, now: all regions."""
    for name, numbers in moved_chunks.items():
        for number in numbers:
            access = _access_there(before[name], now[name], number)
            if access is not None:
                yield mapping_of(name, number), access


def _access_there(was: PlacedRegion, placed: PlacedRegion, number: int) -> Access | None:
    """Who may use a moved chunk if that depends on where it is: on the owner, which is another device now, and on the
    host. None: it does not. was, placed: its region before and now."""
    there, device = was.chunks[number][0], placed.chunks[number][0]
    if placed.region.follows_owner or is_host(there) or is_host(device):
        return tuple((who, right) for who, right in placed.region.access_to(device).items() if right != "none")
    return None


def _with_owner(program: Program, access: Mapping[str, Access]) -> Program:
    """The program with this access. Sealed mappings get it when they are unsealed."""
    sealed = {**program.sealed, **{mapping: given for mapping, given in access.items() if mapping in program.sealed}}
    now = {mapping: _read_only(given) if mapping in sealed else given for mapping, given in access.items()}
    if all(given and mapping in program.rights for mapping, given in now.items()):
        rights = {mapping: rights_of(dict(given), program.devices) for mapping, given in now.items()}
        given_again = [replace(program.rights[mapping], rights=given) for mapping, given in rights.items()]
        return program.remade(given_again, sealed=sealed)
    return replace(with_access(program, now), sealed=sealed)


def _read_only(access: Access) -> Access:
    return tuple((who, "r") for who, _ in access)


def _on(placed: PlacedRegion, numbers: Sequence[range], device: str) -> PlacedRegion:
    """A region with these chunks on one device. If they are all, it is a region of that device: where the plan writes
    no access, the device gets that of the one which had the memory; of several all keep theirs.

    On the host it stays a region of its GPUs, and grows there. Raises ApplyError (HP420): a region whose access the
    plan writes would be out of reach for the device.
    """
    region, access = placed.region, placed.region.access
    if is_host(device):
        return moved(placed, ((some, (device,)) for some in numbers))
    if not region.follows_owner and device not in access and any(holder in access for holder in region.devices):
        why = f"the plan's access has {', '.join(region.devices)}, and {device} would hold the memory"
        hint = f"write access: {{owner: rw}} into the plan, or add {device}: rw"
        raise refuse(f"no access to '{region.name}' for {device}", why=why, hint=hint)
    there = moved(placed, ((some, (device,)) for some in numbers))
    if sum(map(len, numbers)) < len(placed.chunks):
        return there
    if region.spec.access is None:
        access = region.access_to(device)
    return replace(there, region=region._replace(devices=(device,), access=access, of_gpus=()))
