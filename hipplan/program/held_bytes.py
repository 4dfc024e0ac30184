"""Programs that move the bytes of what a holder keeps: each allocation is mapped by itself, wherever there is room.

The plan's own mappings are no help: they may leave bytes out, or give no device the right to write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from hipplan.errors import ApplyError, Diagnostic, HeldError
from hipplan.files.tensorfiles import Wanted
from hipplan.language.objects import bare_uuid
from hipplan.machines.machine import Machine
from hipplan.program import steps
from hipplan.program.alterations import no_room_to_wake
from hipplan.program.content_steps import ContentStep, LoadFiles, Part, Save, Taken, staging_of
from hipplan.program.contents import with_lanes
from hipplan.program.held import import_of, ordinals_here
from hipplan.program.program import Program

_PREFIX = "#bytes."
"""How the names of the ranges begin: as no name of a plan does."""


def saves(program: Program, here: Machine, files: Sequence[tuple[int, int]]) -> Program:
    """Imports all allocations and writes their bytes one after the other into open files.

    program: what is held. here: the machine as this process sees it. files: descriptors and sizes. Raises HeldError
    (HP454).
    """
    mapped, allocations = _mapped(program, here, imported=True)
    pieces = [piece for _, piece in _pieces(allocations, [size for _, size in files])]
    places = tuple((files[piece.file][0], piece.at) for piece in pieces)
    parts = tuple(piece.part for piece in pieces)
    step = Save(name=program.name, origin=None, file="host memory", parts=parts, places=places)
    return _with_contents(mapped, step)


def restores(program: Program, here: Machine, files: Sequence[tuple[str, int]]) -> Program:
    """Makes all allocations anew and fills them from the files that the program of saves() wrote. As saves()."""
    mapped, allocations = _mapped(program, here, imported=False)
    loads = []
    for name, piece in _pieces(allocations, [size for _, size in files]):
        size = piece.part.size
        wanted = Wanted(name=name, size=size, asked=size, file=files[piece.file][0], at=piece.at)
        loads.append(Taken(wanted, ((0, piece.part),)))
    names = tuple(name for name, _ in files)
    return _with_contents(mapped, LoadFiles(name=program.name, origin=None, loads=tuple(loads), files=names))


def size_held(program: Program) -> int:
    """Bytes of all allocations, wherever they are."""
    return sum(step.size for step in program.steps if isinstance(step, steps.CreateAllocation))


def require_room(program: Program, here: Machine, beside: Mapping[str, int]) -> None:
    """beside: bytes that are certainly in use, by UUID of a device. Raises ApplyError (HP442)."""
    short: list[Diagnostic] = []
    for name, needed in program.bytes_by_device().items():
        device = here.devices[program.devices[name]]
        if device.memory is not None:
            in_use = max(device.in_use, beside.get(bare_uuid(device.uuid or ""), 0))
            free = max(0, device.memory - in_use)
            short += [no_room_to_wake(name, needed, free)] if needed > free else []
    if short:
        raise ApplyError(short)


class _Piece(NamedTuple):
    """Bytes of one allocation in one file."""

    part: Part
    file: int
    at: int


def _pieces(allocations: Mapping[str, Part], sizes: Sequence[int]) -> Iterator[tuple[str, _Piece]]:
    """The bytes of the allocations, one after the other, in files of these sizes; with the allocations' names."""
    file = at = 0
    for name, whole in allocations.items():
        done = 0
        while done < whole.size:
            size = min(whole.size - done, sizes[file] - at)
            yield name, _Piece(replace(whole, offset=whole.offset + done, size=size), file, at)
            done, at = done + size, at + size
            if at == sizes[file]:
                file, at = file + 1, 0


def _mapped(program: Program, here: Machine, *, imported: bool) -> tuple[Program, dict[str, Part]]:
    """The program, and the bytes of each allocation in it."""
    ordinals = ordinals_here(program, here)
    held = [step for step in program.steps if isinstance(step, steps.CreateAllocation)]
    used = {step.device for step in held if step.location == "device"}
    devices = {name: number for name, known in program.devices.items() if (number := ordinals[known]) is not None}
    if unseen := [name for name, known in program.devices.items() if known in used and name not in devices]:
        raise HeldError(Diagnostic("HP454", f"this process does not see {unseen[0]}, which holds the memory"))
    if not devices:
        raise HeldError(Diagnostic("HP454", "this process sees no device of the plan"))
    names = {known: name for name, known in program.devices.items()}
    parts: dict[str, Part] = {}
    made: list[steps.Step] = []
    for step in held:
        mover = ordinals[step.device] if step.location == "device" else min(devices.values())
        assert mover is not None
        own = replace(step, device=mover) if step.location == "device" else step
        made.append(import_of(step, names, ordinals) if imported else own)
        made += _range(step, mover)
        parts[step.name] = Part(_PREFIX + step.name, 0, step.size, mover)
    whole = replace(
        program.nothing, machine=here.name, measured=here, steps=tuple(made), devices=devices, shared={}, parts={}
    )
    return whole, parts


def _range(step: steps.CreateAllocation, mover: int) -> Iterator[steps.Step]:
    """The addresses of one allocation, all of it mapped, which one device may write."""
    name = _PREFIX + step.name
    yield steps.Reserve(name, None, step.size, step.size, 0, 0, 0, False)
    yield steps.Map(f"{name}[0]", None, name, step.name, 0, step.size, step.size)
    yield steps.SetAccess(f"{name}[0]", None, ((mover, "rw"),))


def _with_contents(program: Program, step: ContentStep) -> Program:
    program = with_lanes(program, staging_of((step,)))
    return replace(program, steps=(*program.steps, step))
