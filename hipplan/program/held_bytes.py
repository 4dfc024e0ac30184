"""Programs that save and restore the bytes of a holder's allocations.

They map each allocation in a range of its own, at any address. The plan's own mappings may leave bytes out, or give no
device write access.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from hipplan.errors import ApplyError, Diagnostic, HeldError
from hipplan.files.tensorfiles import WantedBytes
from hipplan.kinds.allocation.live import CreateAllocation
from hipplan.language.objects import bare_uuid
from hipplan.machines.machine import Machine
from hipplan.program import steps
from hipplan.program.content_steps import ContentStep, LoadFiles, MemoryPart, Save, Taken, staging_of
from hipplan.program.contents import with_lanes
from hipplan.program.held import ordinals_here
from hipplan.program.imported import import_of, mapping_steps, range_for
from hipplan.program.program import Program
from hipplan.program.refusals import no_room_to_wake
from hipplan.program.runs import alike

_PREFIX = "#bytes."
"""The prefix of the names of the ranges, which no name of a plan has."""


def saving_program(program: Program, here: Machine, files: Sequence[tuple[int, int]]) -> Program:
    """A program that imports all allocations and writes their bytes, one after the other, into open files.

    program: the held program. here: the machine as this process sees it. files: descriptors and sizes in bytes.

    Raises HeldError (HP454).
    """
    mapped, allocations = _mapped(program, here, imported=True)
    pieces = [piece for _, piece in _pieces(allocations, [size for _, size in files])]
    places = tuple((files[piece.file][0], piece.at) for piece in pieces)
    parts = tuple(piece.part for piece in pieces)
    step = Save(name=program.name, origin=None, file="host memory", parts=parts, places=places)
    return _with_contents(mapped, step)


def restoring_program(program: Program, here: Machine, files: Sequence[tuple[str, int]]) -> Program:
    """A program that creates all allocations again and fills them from the files that the saving program wrote.

    files: paths and sizes in bytes; else as saving_program().
    """
    mapped, allocations = _mapped(program, here, imported=False)
    loads = []
    for name, piece in _pieces(allocations, [size for _, size in files]):
        size = piece.part.size
        wanted = WantedBytes(name=name, size=size, asked=size, file=files[piece.file][0], at=piece.at)
        loads.append(Taken(wanted, ((0, piece.part),)))
    names = tuple(name for name, _ in files)
    return _with_contents(mapped, LoadFiles(name=program.name, origin=None, loads=tuple(loads), files=names))


def size_held(program: Program) -> int:
    """Bytes of all allocations, on devices and the host."""
    return sum(many * step.size for step, many in alike(program.steps) if isinstance(step, CreateAllocation))


def require_free_memory(program: Program, here: Machine, beside: Mapping[str, int]) -> None:
    """Raise ApplyError (HP442) if a device lacks memory for a program.

    beside: bytes that other generations of the holder use, by UUID of a device.
    """
    errors: list[Diagnostic] = []
    for name, needed in program.bytes_by_device().items():
        device = here.devices[program.devices[name]]
        if device.memory is not None:
            in_use = max(device.in_use, beside.get(bare_uuid(device.uuid or ""), 0))
            free = max(0, device.memory - in_use)
            errors += [no_room_to_wake(name, needed, free)] if needed > free else []
    if errors:
        raise ApplyError(errors)


class _Piece(NamedTuple):
    """Bytes of one allocation in one file. file: its index. at: the offset in it."""

    part: MemoryPart
    file: int
    at: int


def _pieces(allocations: Mapping[str, MemoryPart], sizes: Sequence[int]) -> Iterator[tuple[str, _Piece]]:
    """(allocation, piece) for each piece, where the allocations follow one another in files of these sizes."""
    file = at = 0
    for name, allocation in allocations.items():
        done = 0
        while done < allocation.size:
            size = min(allocation.size - done, sizes[file] - at)
            yield name, _Piece(replace(allocation, offset=allocation.offset + done, size=size), file, at)
            done, at = done + size, at + size
            if at == sizes[file]:
                file, at = file + 1, 0


def _mapped(program: Program, here: Machine, *, imported: bool) -> tuple[Program, dict[str, MemoryPart]]:
    """A program that imports or creates all allocations and maps them, and the part that each allocation is."""
    ordinals = ordinals_here(program, here)
    memory = [*program.own_memory()]
    used = {step.device for step in memory if step.location == "device"}
    devices = {name: ordinal for name, known in program.devices.items() if (ordinal := ordinals[known]) is not None}
    if unseen := [name for name, known in program.devices.items() if known in used and name not in devices]:
        raise HeldError(Diagnostic("HP454", f"this process does not see {unseen[0]}, which holds the memory"))
    if not devices:
        raise HeldError(Diagnostic("HP454", "this process sees no device of the plan"))
    names = {known: name for name, known in program.devices.items()}
    parts: dict[str, MemoryPart] = {}
    mapping: list[steps.Step] = []
    for step in memory:
        mover = ordinals[step.device] if step.location == "device" else min(devices.values())
        assert mover is not None
        created = replace(step, device=mover) if step.location == "device" else step
        mapping.append(import_of(step, names, ordinals) if imported else created)
        mapping += _range(step, mover)
        parts[step.name] = MemoryPart(_PREFIX + step.name, 0, step.size, mover)
    mapped = replace(
        program.nothing, machine=here.name, measured=here, steps=tuple(mapping), devices=devices, shared={}, parts={}
    )
    return mapped, parts


def _range(step: CreateAllocation, mover: int) -> Iterator[steps.Step]:
    """Steps that map a whole allocation in a range of its own, and let one device write it."""
    name = _PREFIX + step.name
    yield range_for(name, step.size)
    yield from mapping_steps(step, f"{name}[0]", name, 0, ((mover, "rw"),))


def _with_contents(program: Program, step: ContentStep) -> Program:
    program = with_lanes(program, staging_of((step,)))
    return replace(program, steps=(*program.steps, step))
