"""Recreates mapped memory under the same addresses. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from hipplan.errors import Diagnostic, MachineError, suggest
from hipplan.kinds.allocation.live import CopyBytes, CreateAllocation, before
from hipplan.kinds.mapping.live import Map, SetAccess, TakeOut, rights_of
from hipplan.kinds.reservation.live import Reserve
from hipplan.language.host import HOST, NEAR, is_host, node_of, on_node
from hipplan.program import patterns, steps
from hipplan.program.borders import Part, chunks_in, mappings_in
from hipplan.program.difference import Difference, renewal
from hipplan.program.facts import number_key
from hipplan.program.memory import right_to_copy_from
from hipplan.program.on_host import lacking, near
from hipplan.program.program import Program
from hipplan.program.refusals import refuse
from hipplan.program.regions import PlacedRegion, mapping_of, memory_of, moved
from hipplan.program.resize import require, require_memory
from hipplan.program.resources import Access
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
    allocations = {step.name for step in chosen.steps if step.makes == "allocation"}
    imported = next((step.name for step in chosen.steps if step.is_import), None)
    if imported is not None:
        raise refuse(f"'{imported}' is imported: it cannot be recreated here")
    made = program if device is None else _moved(program, chosen, device)
    now = chosen.steps if device is None else tuple(_again(made, chosen.steps))
    change = renewal(program, made, chosen.steps, now)
    change = replace(change, retain=retain or (None if device is None or is_host(device) else False))
    moves = device is not None and stays_in_reach(program, made, chosen.steps)
    carries = carries_of(change, allocations) if keep_bytes else ()
    return replace(change, carries=tuple(carries), keeps_views=moves)


def stays_in_reach(program: Program, made: Program, chosen: Iterable[steps.Step]) -> bool:
    """Whether memory moves to the host or back, no memory moves to another GPU, and each device keeps its rights."""
    on_host = False
    for step in chosen:
        if step.owns_memory:
            again = made.makers[step.name]
            if step.is_on_host or again.is_on_host:
                on_host = True
            elif step.owner != again.owner:
                return False
        elif isinstance(step, SetAccess):
            given = made.rights.get(step.name)
            now = dict(given.rights) if given is not None else {}
            if any(right not in now.get(who, "") for who, right in step.rights if who != steps.CPU_ORDINAL):
                return False
    return on_host


@dataclass
class ChosenMemory:
    """The memory that is made again."""

    steps: Sequence[steps.Step] = ()
    """The steps that make it, map it and set its rights, in their order."""
    chunks: dict[str, Sequence[int]] = field(default_factory=dict)
    """The numbers of the chunks of each region in it."""


def with_all_of(program: Program, memory: Set[str]) -> ChosenMemory:
    """These allocations, with all steps of theirs."""
    numbers = {
        name: [number for number in range(len(placed.chunks)) if memory_of(name, number) in memory]
        for name, placed in program.regions.items()
    }
    return ChosenMemory([*_steps_of(program, memory)], {name: some for name, some in numbers.items() if some})


def _chosen(program: Program, pattern: str, part: Part | None) -> ChosenMemory:
    """What a name or pattern means. Raises as remapped()."""
    chosen, memory = ChosenMemory(), set[str]()
    of_chunks: list[steps.Step] = []
    kinds = _RANGES if part is not None else (*_RANGES, "mapping", "allocation")
    for name in patterns.chosen(program, [pattern], *kinds):
        kind = _require(program, name, *kinds)
        if kind == "region":
            everything = range(len(program.regions[name].chunks))
            chosen.chunks[name] = everything if part is None else chunks_in(program, name, part)
            of_chunks += _steps_of_chunks(program, name, chosen.chunks[name])
        elif kind == "allocation":
            memory |= _allocation(program, name)
        elif part is None:
            memory |= {mapping.memory for mapping in mappings_of(program, name)}
        else:
            memory |= {mapping.memory for mapping in mappings_in(name, mappings_of(program, name), part)}
    both = (*of_chunks, *_steps_of(program, memory))
    chosen.steps = sorted(both, key=lambda step: program.numbers[number_key(step)])
    return chosen


def _steps_of_chunks(program: Program, region: str, numbers: Iterable[int]) -> Iterator[steps.Step]:
    """The steps of chunks of a region, without a look at others."""
    for number in numbers:
        yield program.makers[memory_of(region, number)]
        yield from _mapped_again(program, mapping_of(region, number))


def _steps_of(program: Program, memory: Set[str]) -> Iterator[steps.Step]:
    """The steps of allocations."""
    if not memory:
        return
    mapped = {step.name for step in program.mappings() if step.allocation in memory}
    for step in program.steps:
        if step.name in (memory if step.makes == "allocation" else mapped if step.of_mapping else ()):
            yield step


def _again(program: Program, before: Iterable[steps.Step]) -> Iterator[steps.Step]:
    """The steps that a program has for the same memory."""
    for step in before:
        if isinstance(step, Map):
            yield from _mapped_again(program, step.name)
        elif step.makes:
            yield program.makers[step.name]


def _mapped_again(program: Program, mapping: str) -> Iterator[steps.Step]:
    yield program.makers[mapping]
    if (rights := program.rights.get(mapping)) is not None:
        yield rights


_RANGES = ("region", "reservation")


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
    inside = next(
        (
            resource.inside
            for resource in program.resources
            if resource.memory == name and resource.inside in program.regions
        ),
        "",
    )
    if inside:
        raise refuse(f"'{name}' is a piece of the region '{inside}'", hint=f"name '{inside}'")
    return {name}


def _moved(program: Program, chosen: ChosenMemory, device: str) -> Program:
    """The program with the chosen memory on another device, or on the host."""
    place = on_host(program, chosen, device) if is_host(device) else on_device(program, device)
    regions = {name: _on(program.regions[name], numbers, place.name) for name, numbers in chosen.chunks.items()}
    return placed_at(program, chosen, {step.name: place for step in chosen.steps}, regions)


def placed_at(
    program: Program,
    chosen: ChosenMemory,
    places: Mapping[str, Place],
    regions: Mapping[str, PlacedRegion],
    **fields: Any,
) -> Program:
    """The program with the chosen memory in other places. places: of each allocation. regions: those of the program
    with it. fields: of the new program."""
    made = [
        step.moved_to(places[step.name].number, places[step.name].location) if step.owns_memory else step
        for step in chosen.steps
        if step.makes
    ]
    there = program.remade(made, regions={**program.regions, **regions}, **fields)
    owned = dict(_to_owner((program.regions[name], regions[name], numbers) for name, numbers in chosen.chunks.items()))
    return _with_owner(there, owned) if owned else there


class Place(NamedTuple):
    """Where memory moves to."""

    name: str
    """The name of a device of the plan, or of the host."""
    number: int
    """The ordinal, or the NUMA node."""
    location: str


def on_host(program: Program, chosen: ChosenMemory, device: str) -> Place:
    """Returns the place of chosen memory on the host. Raises ApplyError (HP420), MachineError (HP309)."""
    _require_movable(chosen)
    machine = program.measured
    if device == on_node(NEAR):
        gpus = [program.regions[name].region.gpus[0] for name in chosen.chunks] or list(program.devices)
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
    for step in chosen.steps:
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
    moved: Iterable[tuple[PlacedRegion, PlacedRegion, Sequence[int]]],
) -> Iterator[tuple[str, Access]]:
    """(mapping, who may use it) of moved chunks whose access depends on where they are: of the owner, which is another
    device now, and of the host. moved: regions before and now, with the numbers of these chunks."""
    for was, placed, numbers in moved:
        for number in numbers:
            there, device = was.chunks[number][0], placed.chunks[number][0]
            if placed.region.follows_owner or is_host(there) or is_host(device):
                access = placed.region.access_to(device).items()
                given = tuple((who, right) for who, right in access if right != "none")
                yield mapping_of(placed.region.name, number), given


def _with_owner(program: Program, access: Mapping[str, Access]) -> Program:
    """The program with this access. Sealed mappings get it when they are unsealed."""
    sealed = {**program.sealed, **{mapping: given for mapping, given in access.items() if mapping in program.sealed}}
    now = {
        mapping: tuple((who, "r") for who, _ in given) if mapping in sealed else given
        for mapping, given in access.items()
    }
    if all(given and mapping in program.rights for mapping, given in now.items()):
        rights = {mapping: rights_of(dict(given), program.devices) for mapping, given in now.items()}
        given_again = [replace(program.rights[mapping], rights=given) for mapping, given in rights.items()]
        return program.remade(given_again, sealed=sealed)
    return replace(with_access(program, now), sealed=sealed)


def _on(placed: PlacedRegion, numbers: Sequence[int], device: str) -> PlacedRegion:
    """A region with these chunks on one device. If they are all, it is a region of that device: where the plan writes
    no access, the device gets that of the one which had the memory; of several all keep theirs.

    On the host it stays a region of its GPUs, and grows there. Raises ApplyError (HP420): a region whose access the
    plan writes would be out of reach for the device.
    """
    region, access = placed.region, placed.region.access
    if is_host(device):
        return moved(placed, numbers, device)
    if not region.follows_owner and device not in access and any(holder in access for holder in region.devices):
        why = f"the plan's access has {', '.join(region.devices)}, and {device} would hold the memory"
        hint = f"write access: {{owner: rw}} into the plan, or add {device}: rw"
        raise refuse(f"no access to '{region.name}' for {device}", why=why, hint=hint)
    there = moved(placed, numbers, device)
    if len(numbers) < len(placed.chunks):
        return there
    if region.spec.access is None:
        access = region.access_to(device)
    return replace(there, region=region._replace(devices=(device,), access=access, of_gpus=()))


def carries_of(change: Difference, names: Set[str]) -> Iterator[steps.Step]:
    """The steps that copy the bytes of each allocation. The new memory is mapped at a temporary place for this, and so
    is the old memory, unless it already has a mapping that the copying devices may read."""
    machine = change.new.measured
    new = {step.name: step for step in change.additions if isinstance(step, CreateAllocation)}
    in_place = _OldMappings(change)
    for was in change.gone:
        if not isinstance(was, CreateAllocation) or was.name not in names:
            continue
        name, size, now = was.name, was.size, new[was.name]
        source, target = _copiers(was, now, change.old)
        both = machine is not None and machine.can_access(source, target) and machine.can_access(target, source)
        who = {ordinal: {source, target} if both else {ordinal} for ordinal in (source, target)}
        place, there = (
            f"{name} (copy)",
            in_place.readable(was.name, was.size, source, who[source], right_to_copy_from(machine)),
        )
        mapped = [(f"{name} (copied to)", name, target)]
        if there is None:
            mapped.append((f"{name} (copied from)", before(name), source))
        taken = len(mapped) * size
        yield Reserve(place, None, size=taken, asked=taken, alignment=0, slack=0, address=0, exact=False)
        for number, (piece, memory, device) in enumerate(mapped):
            at = number * size
            yield Map(piece, None, reservation=place, allocation=memory, offset=at, size=size, asked=size)
            yield SetAccess(piece, None, rights=tuple((ordinal, "rw") for ordinal in sorted(who[device])))
        yield CopyBytes(
            name=name,
            origin=None,
            source=mapped[-1][0] if there is None else there,
            in_place=there is not None,
            source_device=source,
            target=mapped[0][0],
            target_device=target,
            size=size,
        )


def _copiers(was: CreateAllocation, now: CreateAllocation, program: Program) -> tuple[int, int]:
    """The devices that read the old memory and write the new one. The GPU of the other side moves memory of the host;
    from one node to another, the first device of the plan does."""
    gpus = [step.device for step in (was, now) if step.location == "device"] or [*program.devices.values()]
    source, target = (step.device if step.location == "device" else gpus[0] for step in (was, now))
    return source, target


class _OldMappings:
    """The mappings of memory that is made again. All of them are taken out."""

    def __init__(self, change: Difference) -> None:
        self._maps: dict[str, list[Map]] = {}
        for step in change.gone:
            if isinstance(step, Map):
                self._maps.setdefault(step.allocation, []).append(step)
        self._rights = {step.name: dict(step.rights) for step in change.changes if isinstance(step, TakeOut)}

    def readable(self, memory: str, size: int, holder: int, devices: Set[int], right: str) -> str | None:
        """A mapping of all of an allocation that all of these devices may read. right: what they need but for the
        holder."""
        needed = {device: "r" if device == holder else right for device in devices}
        for mapping in self._maps.get(memory, ()):
            rights = self._rights.get(mapping.name, {})
            if mapping.size == size and all(right in rights.get(device, "") for device, right in needed.items()):
                return mapping.name
        return None
