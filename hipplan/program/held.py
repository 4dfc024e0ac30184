"""Programs for holders: what a holder can hold, and what a process that attaches imports and maps.

A holder keeps descriptors of allocations. A process that attaches imports them, reserves and maps at the program's
addresses, and gives devices the rights that the program has for attached processes. So it has the same names at the
same addresses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from hipplan.errors import Diagnostic, HeldError, MachineError, PlanError, Span
from hipplan.kinds.allocation.live import CreateAllocation, ImportAllocation
from hipplan.kinds.lives import BUFFERS
from hipplan.kinds.mapping.live import SetAccess
from hipplan.kinds.peer.live import EnablePeer
from hipplan.kinds.reservation.live import Reserve
from hipplan.kinds.stream.live import CreateStream
from hipplan.language.findings import in_order
from hipplan.language.host import HOST
from hipplan.language.objects import Path, bare_uuid
from hipplan.machines.machine import Machine
from hipplan.program import contents, steps
from hipplan.program.addresses import addresses_for, at_addresses
from hipplan.program.chunk_runs import with_runs_of
from hipplan.program.imported import at_any_address, import_of, no_link, ordinal_here
from hipplan.program.peak import OPEN_FILES_MARGIN
from hipplan.program.program import Program
from hipplan.program.resources import Access, Resource
from hipplan.program.runs import alike, each_as, without

if TYPE_CHECKING:
    from hipplan.language.loader import LoadedPlan  # attaching reads no plan

Right = Literal["r", "rw"]
Limit = Literal["plan", "r", "rw"]
"""The access of an attached process: the plan's right for each object, or one right for all objects."""
AddressChoice = Literal["same", "any"]

_WHY_NO_POOL = "PyTorch takes and frees its memory in one process"


def writable(program: Program) -> list[str]:
    """Objects that the plan lets attached processes write: regions, reservations, or single mappings of a reservation
    whose other mappings are read-only.

    Sealed memory counts, because attached processes can unseal it.
    """
    written_mappings: dict[str, list[str]] = {}
    partly_read_only: set[str] = set()
    for mapping in mappings(program):
        if mapping.attached == "rw" and has_writers(mapping, program):
            written_mappings.setdefault(mapping.inside, []).append(mapping.name)
        else:
            partly_read_only.add(mapping.inside)
    whole = program.regions.keys() | (written_mappings.keys() - partly_read_only)
    return [name for range_, names in written_mappings.items() for name in ([range_] if range_ in whole else names)]


def read_only(program: Program, access: Limit) -> dict[str, Right]:
    """Mappings that the plan lets devices write, but that a process attached with this access may only read -> the
    right that the plan gives attached processes."""
    return {
        mapping.name: mapping.attached
        for mapping in mappings(program)
        if limit(mapping, access) == "r" and has_writers(mapping, program)
    }


def mappings(program: Program) -> Iterator[Resource]:
    return (resource for resource in program.resources if resource.memory)


def has_writers(mapping: Resource, program: Program) -> bool:
    """Whether any device may write a mapping when it is not sealed."""
    return "rw" in dict(program.sealed.get(mapping.name, mapping.access)).values()


def limit(mapping: Resource, access: Limit) -> Right:
    """The most that an attached process may do with a mapping."""
    return mapping.attached if access == "plan" else access


def unholdable_objects(plan: LoadedPlan) -> Iterator[Diagnostic]:
    """HP450, for each object of a plan that no holder can hold, on any machine."""
    objects = plan.objects
    made: list[tuple[str, str, Path]] = [
        (name, BUFFERS[line.first.spec.kind].why_not_held, line.first.path)
        for line in objects.buffers.lines
        for name in line.names
    ]
    made += [(name, CreateStream.why_not_held, stream.path) for name, stream in objects.streams.items()]
    made += [(f"{peer.device}->{peer.peer}", EnablePeer.why_not_held, peer.path) for peer in objects.peers]
    imports = (line for line in objects.allocations.lines if line.memory.spec.bind)
    made += [(name, ImportAllocation.why_not_held, line.memory.path) for line in imports for name in line.names]
    made += [(name, _WHY_NO_POOL, region.path) for name, region in objects.regions.items() if region.spec.torch]
    for name, why, path in made:
        yield _cannot_be_held(name, why, plan.span(*path, key=True))
    if not any(not line.memory.spec.bind for line in objects.allocations.lines) and not objects.regions:
        yield _NOTHING_TO_HOLD


def holdable(program: Program) -> Program:
    """The same program with allocations that can be exported. Raises PlanError (HP450); MachineError (HP308): a process
    may not have so many descriptors open."""
    errors = list(_unholdable(program))
    if errors:
        raise PlanError(in_order(errors))
    made = replace(program, steps=each_as(lambda step: step.exportable(), program.steps))
    _require_descriptors(made)
    return made


def _require_descriptors(program: Program) -> None:
    machine = program.measured
    limit = None if machine is None else machine.limits.open_files
    needed = program.descriptors  # CUDA's memory has none of its own, and another one is sent
    if machine is not None and machine.runtime != "cuda":
        needed += sum(many for step, many in alike(program.steps) if step.makes == "allocation")
    if limit and needed + OPEN_FILES_MARGIN > limit:
        summary = f"to hand its memory to a holder takes {needed} file descriptors, the limit is {limit}"
        why = f"each allocation takes up to three for that; {OPEN_FILES_MARGIN} are reserved for the process"
        hint = "use fewer, larger allocations or chunks, or raise the hard limit (ulimit -Hn)"
        raise MachineError(Diagnostic("HP308", summary, why=why, hint=hint))


def _unholdable(program: Program) -> Iterator[Diagnostic]:
    """HP450, for each object that a holder cannot hold."""
    for name, shared in program.shared.items():
        why = "map: is for ranks that apply together; attached processes can map all of it"
        yield Diagnostic("HP450", f"a holder cannot hold '{name}' for ranks", shared.origin, why=why)
    for name, placed in program.regions.items():
        if placed.region.spec.torch is not None:
            yield _cannot_be_held(name, _WHY_NO_POOL, program.makers[name].origin)
    lanes = contents.lane_names(program)
    for step in with_runs_of((), program.making):
        if step.why_not_held and step.name not in lanes:
            yield _cannot_be_held(step.name, step.why_not_held, step.origin)
    if not any(step.owns_memory for step, _ in alike(program.making)):
        yield _NOTHING_TO_HOLD


def _cannot_be_held(name: str, why: str, where: Span | None) -> Diagnostic:
    hint = "remove it, and apply it in the process that uses it: holders hold allocations and regions"
    return Diagnostic("HP450", f"a holder cannot hold '{name}'", where, why=why, hint=hint)


_NOTHING_TO_HOLD = Diagnostic(
    "HP450", "there is nothing for a holder to hold", why="the plan makes no memory of devices"
)


def with_addresses(program: Program) -> Program:
    """The program with addresses that are likely to be free in processes that attach, chosen as `hipplan lock` does."""
    return at_addresses(program, addresses_for(program))


def held_program(program: Program, addresses: Mapping[str, int]) -> Program:
    """The program that a holder keeps for processes that attach, without contents and the text of the plan.

    addresses: of each reservation.
    """
    lanes = contents.lane_names(program)
    making = without(program.making, lambda step: step.name in lanes, ())
    held = each_as(lambda step: replace(step, origin=None), making)
    return at_addresses(replace(program, steps=held, warnings=(), source=program.name), addresses)


def exported_allocations(program: Program) -> list[str]:
    """The allocations that a held program creates, in the order in which their descriptors are sent."""
    return [step.name for step in program.steps if step.owns_memory]


def imported_allocations(program: Program) -> list[str]:
    """The allocations that a program imports, in the same order."""
    return [step.name for step in program.steps if step.is_import]


def bytes_held(program: Program) -> dict[str, int]:
    """Device -> bytes, as readable text."""
    return {name: size for name, size in program.bytes_by_device().items() if size}


def bytes_by_uuid(program: Program) -> dict[str, int]:
    """UUID of a device -> bytes, because device names differ between processes."""
    devices = program.measured.devices if program.measured else []
    sizes = ((devices[program.devices[name]].uuid, size) for name, size in bytes_held(program).items() if devices)
    return {bare_uuid(uuid or ""): size for uuid, size in sizes}


def attaching_program(program: Program, here: Machine, access: Limit, addresses: AddressChoice) -> Program:
    """The program of a process that attaches: it imports and maps the allocations of a held program.

    here: the machine as that process sees it. access: limits the rights; sealed mappings stay sealed.

    Raises HeldError (HP454): the process does not see a device, or a device cannot access another's memory.
    """
    limits = {mapping.name: limit(mapping, access) for mapping in mappings(program)}
    ordinals = ordinals_here(program, here)
    devices = {name: ordinal for name, known in program.devices.items() if (ordinal := ordinals[known]) is not None}
    names = {number: name for name, number in program.devices.items()}

    def attaching(step: steps.Step) -> steps.Step | None:
        if isinstance(step, CreateAllocation):
            return import_of(step, names, ordinals)
        if addresses == "any" and isinstance(step, Reserve):
            return at_any_address(step)
        if isinstance(step, SetAccess):
            most = limits[step.name]
            limited = ((who if who < 0 else ordinals[who], min(right, most)) for who, right in step.rights)
            rights = tuple((who, right) for who, right in limited if who is not None)
            return replace(step, rights=rights) if rights else None
        return step

    attached = replace(
        program,
        machine=here.name,
        measured=here,
        steps=tuple(new for step in program.steps if (new := attaching(step)) is not None),
        devices=devices,
        selectors={name: program.selectors.get(name, "") for name in devices},
        host_visible=frozenset(name for name, ordinal in devices.items() if here.devices[ordinal].host_visible),
        sealed=_unsealable(program, devices, limits),
        attached={},
    )
    errors = list(_unreachable(attached, here))
    if errors:
        raise HeldError(in_order(errors))
    return attached


def ordinals_here(program: Program, here: Machine) -> dict[int, int | None]:
    """Ordinal of a device in the process that made a program -> its ordinal in this one; None if it does not see it."""
    there = program.measured.devices if program.measured else []
    return {number: ordinal_here(there[number], number, here) for number in program.devices.values()}


def of_other_family(name: str, made: str, here: str) -> Diagnostic:
    """HP454: a process uses another kind of runtime than the one that made a holder's memory."""
    why = f"the memory of '{name}' was made with the runtime {made}, and this is {here}"
    return Diagnostic("HP454", "the runtimes are of different kinds", why=why)


def _unsealable(program: Program, devices: Mapping[str, int], limits: Mapping[str, Right]) -> dict[str, Access]:
    """Sealed mappings that an attached process may unseal -> their rights after that."""
    return {
        mapping: tuple((who, right) for who, right in rights if who == HOST or who in devices)
        for mapping, rights in program.sealed.items()
        if limits[mapping] == "rw"
    }


def _unreachable(program: Program, here: Machine) -> Iterator[Diagnostic]:
    """HP454, once for each device that this process does not see, and each pair of devices without a link."""
    memory = {step.name: step for step in program.steps if isinstance(step, ImportAllocation)}
    unseen = {step.holder: step.origin for step in memory.values() if step.device == steps.UNSEEN}
    for holder, origin in unseen.items():
        hint = "let it see that device: CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES"
        yield Diagnostic("HP454", f"this process does not see {holder}, which holds the memory", origin, hint=hint)
    behind = {step.name: memory[step.allocation] for step in program.mappings()}
    names = {ordinal: name for name, ordinal in program.devices.items()}
    pairs = {(who, behind[step.name].device): step for step in program.rights.values() for who, _ in step.rights}
    for (who, source), step in pairs.items():
        if why := no_link(here, who, source):
            what = f"{names[who]} cannot be given access to '{step.name}'"
            yield Diagnostic("HP454", what, step.origin, why=why)
