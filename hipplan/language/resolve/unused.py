"""Warnings about objects that a plan makes but does not use."""

from __future__ import annotations

from collections.abc import Iterator

from hipplan.errors import Diagnostic
from hipplan.language.model.plan import Plan
from hipplan.language.objects import Objects, Path, ResolvedAllocation, ResolvedRegion, ResolvedReservation
from hipplan.language.resolve.names import Names


def warn_of_unused(objects: Objects, plan: Plan, names: Names) -> None:
    """Warns of unmapped allocations, mappings that no device may access, unused access and peer links, write access
    for attached processes that no device has, seals on memory without contents, regions that neither contents nor their
    own devices can fill, and preferred locations that others replace."""
    reported: set[Path] = set()

    def warn(code: str, summary: str, path: Path, why: str, hint: str) -> None:
        if path not in reported:  # all objects of one `count` are one line of the plan
            reported.add(path)
            span = names.span(path, key=True)
            names.findings.add(Diagnostic(code, summary, span, why=why, hint=hint, severity="warning"))

    for reservation in objects.reservations.values():
        for mapping in reservation.firsts():
            if not any(right != "none" for right in mapping.access.values()):
                why = "HIP gives no device access to a new mapping, not even the device that holds it"
                summary = f"no device may access '{mapping.allocation}' in '{reservation.name}'"
                warn("HP253", summary, mapping.path, why, "add access: {gpu.0: rw}")
        own = [mapping.access is not None for mapping in reservation.spec.mappings]
        if reservation.spec.access and own and all(own):
            why = "it applies to mappings without their own access, and every mapping has its own"
            summary = f"the access of '{reservation.name}' is unused"
            warn("HP255", summary, (*reservation.path, "access"), why, "remove it, or remove access from the mappings")
    for name, allocation in _unmapped(objects):
        if allocation.spec.shareable == "none":
            why = "an allocation has no address until a reservation maps it"
            warn("HP251", f"nothing maps '{name}'", allocation.path, why, "map it, or remove it")
    buffers = [line.first for line in objects.buffers.lines]
    reached = {b.device for b in buffers if b.spec.for_peers}
    for link in objects.peers if plan.peers != "all" else ():  # `all` is often only a precaution
        if link.peer not in reached:
            why = "peer links are for buffers of kind device; mappings use access"
            warn("HP252", f"no buffer on '{link.peer}' for a peer to reach", link.path, why, "remove the link")
    filled = set(_filled(objects))
    ranges: list[ResolvedRegion | ResolvedReservation] = [*objects.regions.values(), *objects.reservations.values()]
    for range_ in ranges:
        rights = _rights_of_attached(range_)
        if rights and "rw" not in rights:
            why = "attached processes can do no more than access allows, and it gives no device rw"
            path = (*range_.path, "attached") if range_.spec.attached == "rw" else range_.path
            summary = f"attached: rw in '{range_.name}' has no effect"
            warn("HP255", summary, path, why, "give a device rw, or remove attached")
        if isinstance(range_, ResolvedRegion) and range_.name not in filled and range_.spec.map is None:
            holders = [device for device in dict.fromkeys(range_.devices) if range_.own(device) == "none"]
            if holders:
                who = f"{holders[0]} holds '{range_.name}', but has no access to it"
                why = "a device cannot fill memory that it has no access to, and the plan has no contents for it"
                hint = f"add {holders[0]}: rw to access, or place it on a device that has access"
                warn("HP258", who, range_.path, why, hint)
        if range_.spec.seal and range_.name not in filled:
            why = "no device can write sealed memory: its bytes stay undefined"
            summary = f"'{range_.name}' is sealed, but has no contents"
            warn("HP257", summary, (*range_.path, "seal"), why, "add contents for it, or remove seal")
    for buffer in buffers:
        for note in buffer.spec.notes(buffer.name) if buffer.spec.has_lines and buffer.path not in reported else ():
            warn(note.code, note.summary, (*buffer.path, *note.where), note.why, note.hint)


def _unmapped(objects: Objects) -> Iterator[tuple[str, ResolvedAllocation]]:
    """The first allocation of each line of the plan that no reservation maps."""
    lines = [line for reservation in objects.reservations.values() for line in reservation.lines]
    whole = {id(line.memory) for line in lines}
    several = {name for line in lines if isinstance(line.memory, list) for name in line.memory}
    for memory, names in objects.allocations.lines:
        if id(names) not in whole and (name := next((name for name in names if name not in several), None)):
            yield name, memory


def _rights_of_attached(range_: ResolvedRegion | ResolvedReservation) -> set[str]:
    """The rights of devices on memory that attached processes may write."""
    if isinstance(range_, ResolvedRegion):
        rights = {*range_.access.values(), *map(range_.own, range_.devices)}
        return rights if range_.spec.attached == "rw" else set()
    return {
        right
        for mapping_line in range_.firsts()
        if mapping_line.attached == "rw"
        for right in mapping_line.access.values()
    }


def _filled(objects: Objects) -> Iterator[str]:
    """Regions and reservations that contents write, or whose memory is imported: its maker has filled it."""
    tensors = {f"{name}.{short}": name for name, region in objects.regions.items() for short in region.spec.tensors}
    for name in objects.contents:
        yield tensors.get(name, name.partition("[")[0])
    for name, reservation in objects.reservations.items():
        if any(objects.allocations[line.first.allocation].spec.bind is not None for line in reservation.lines):
            yield name
