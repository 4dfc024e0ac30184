"""What a process without Python asks a holder for, and is sent: rows to run, and a table of the objects.

The process cannot read a program, so the holder makes for it what attach() makes for itself. `sees` of its request has
what that depends on:

    form: 1                    of these messages
    family: amd, cuda or sim   the runtime's
    addresses: same or any
    devices: [[uuid, pci]]     by ordinal; uuid in hexadecimal digits of its bytes, both empty if unknown
    links: [[device, peer]]    which device can reach the memory of which other one

The answer has, besides those of every answer to attach:

    plan: its name
    devices: [[name, ordinal, uuid]]   of the plan, as far as the process sees them
    rows: as rows_of() makes them, of four kinds: import allocation, reserve, map, set access. Slots count from 0 in the
        order of the rows that make something; the descriptors are in the order of the rows that import.
    objects: [[name, kind, slot of its range, offset, bytes, dtype, shape, ordinal, 1 if it may be written else 0]]
        ordinal: CPU_ORDINAL for host memory; UNSEEN for what is not on a single device.

cpp/c/answer.cpp reads it; it must not rely on a holder that is in order, nor the holder on its requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

from pydantic import ValidationError

from hipplan.errors import Diagnostic, HeldError
from hipplan.files.dtypes import BYTE
from hipplan.language.host import is_host
from hipplan.layout.dlpack import places_of
from hipplan.layout.state import INSIDE
from hipplan.lowering.lowered import lowered
from hipplan.lowering.rows import Slots, rows_of
from hipplan.machines.discover import uuid_text
from hipplan.machines.family import Family
from hipplan.machines.machine import Link, Machine, MachineDevice
from hipplan.processes.packets import Message
from hipplan.program import held, steps, written
from hipplan.program.held import AddressChoice, Limit
from hipplan.program.program import Program
from hipplan.program.resources import Resource

FORM = 1
_FAMILIES, _ADDRESSES = ("amd", "cuda", "sim"), ("same", "any")
_UUID_BYTES = 16


@dataclass(frozen=True)
class Seen:
    """What a process that attaches sees."""

    machine: Machine
    family: Family
    addresses: AddressChoice

    @staticmethod
    def read(sees: Message) -> Seen:
        """Raises ValueError: it is not valid."""
        if sees.get("form") != FORM or isinstance(sees["form"], bool):
            raise ValueError(f"'sees' has the form {FORM}: the library is of another version of hipplan")
        family, addresses = sees.get("family"), sees.get("addresses")
        if family not in _FAMILIES or addresses not in _ADDRESSES:
            raise ValueError("'family' and 'addresses' of 'sees' are known words")
        devices = [_device(number, *ids) for number, ids in enumerate(_pairs(sees, "devices", str))]
        links = [Link(source=source, target=target) for source, target in _pairs(sees, "links", int)]
        return Seen(Machine(name="this machine", runtime=family, devices=devices, links=links), family, addresses)


def _pairs(sees: dict[str, Any], key: str, kind: type) -> Iterator[Any]:
    pairs = sees.get(key)
    if not isinstance(pairs, list):
        raise ValueError(f"'{key}' of 'sees' is a list")
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or any(type(value) is not kind for value in pair):
            raise ValueError(f"'{key}' of 'sees' has pairs")
        yield pair


def _device(number: int, uuid: str, pci: str) -> MachineDevice:
    raw = bytes.fromhex(uuid)
    if len(raw) not in (0, _UUID_BYTES):
        raise ValueError(f"a UUID has {_UUID_BYTES} bytes")
    return MachineDevice(name=f"device {number}", uuid=uuid_text(raw), pci=pci.lower() or None)


def answer(name: str, made: Message, access: str, sees: Message) -> Message:
    """The keys of the answer. name: of the holder. made: the description of its memory. access: of the process.

    Raises HeldError: what it sees is not valid (HP452), or it does not see what it needs (HP454).
    """
    try:
        seen = Seen.read(sees)
    except ValueError as error:
        why = "a device or a link in 'sees' is not valid" if isinstance(error, ValidationError) else str(error)
        summary = f"the holder '{name}' does not understand this request"
        raise HeldError(Diagnostic("HP452", summary, why=why)) from None
    if seen.family != made["family"]:
        raise HeldError(held.of_other_family(name, made["family"], seen.family))
    of_holder = _read(made["program"])
    program = held.attaching_program(of_holder, seen.machine, cast("Limit", access), seen.addresses)
    native = _lowered(program, of_holder)
    there = seen.machine.devices
    return {
        "plan": program.name,
        "devices": [[device, ordinal, there[ordinal].uuid or ""] for device, ordinal in program.devices.items()],
        "rows": rows_of(native.making, native.slots, native.owners),
        "objects": [
            _object(resource, program, native.slots, seen.family)
            for resource in program.resources
            if _is_placed(resource)
        ],
    }


@lru_cache(maxsize=1)
def _read(program: str) -> Program:
    """The held program, read once for all clients: that takes longer than all else."""
    return written.read(program)


def _lowered(program: Program, of_holder: Program) -> Program:
    """The program as the holder's release of HIP, which the process has too, needs it. The imports come first, in the
    order in which the descriptors are sent."""
    native = lowered(replace(program, measured=of_holder.measured))
    imports = [step for step in program.steps if step.is_import]
    others = (step for step in native.steps if not step.is_import)
    return program if native.steps is program.steps else replace(native, steps=(*imports, *others))


def _is_placed(resource: Resource) -> bool:
    return resource.kind != "allocation"


def _object(resource: Resource, program: Program, slots: Slots, family: Family) -> tuple[Any, ...]:
    is_inside = resource.kind in INSIDE
    range_, offset = (resource.inside, resource.offset) if is_inside else (resource.name, 0)
    dtype, shape = (resource.dtype, resource.shape) if resource.dtype else (BYTE.name, (resource.size,))
    first = next(iter(places_of(resource, program, family).values()), None)
    is_writable = first is not None and not first.read_only
    ordinal = steps.UNSEEN
    if len(resource.bytes_by_device) < 2:
        ordinal = steps.CPU_ORDINAL if is_host(resource.device) else program.devices.get(resource.device, steps.UNSEEN)
    size = resource.size
    return resource.name, resource.kind, slots[range_], offset, size, dtype, shape, ordinal, int(is_writable)
