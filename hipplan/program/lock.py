"""Locks: what a plan becomes on one machine. A later run gets the same layout, or an error that says why not.

A lock is a YAML file to keep beside the plan. It has the digest of the plan and its variables, the facts
of the machine that matter, the sizes after padding, and an address for every reservation. No time and no path is in it:
the same plan and machine give the same text.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field, ValidationError

from hipplan.errors import Diagnostic, MachineError, PlanError, Span
from hipplan.language.arch import has_arch
from hipplan.language.base import PlanModel
from hipplan.language.findings import in_order
from hipplan.language.source import load_yaml
from hipplan.machines.machine import Machine
from hipplan.machines.profiles import Dumper
from hipplan.program import families
from hipplan.program.addresses import addresses_for, at_addresses
from hipplan.program.open_sizes import NONE_KNOWN, Sizes
from hipplan.program.program import Program
from hipplan.units import full_size

DIFFERENCES_MAX = 20
"""HP320 names at most so many objects."""

Whole = Annotated[int, Field(ge=0, lt=2**64)]


class LockedPlan(PlanModel):
    """Identifies the plan."""

    name: str
    """The plan's name in reports; not compared."""
    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    """The digest of the expanded document."""
    variables: dict[str, bool | int | float | str | list[bool | int | str] | None] = {}
    """Their values."""


class LockedDevice(PlanModel):
    """The facts of one device. Facts that were unknown are left out, and not compared.

    Its amount of memory is not compared: drivers reserve different amounts, and preflight checks that it is enough.
    """

    ordinal: Whole
    arch: str | None = None
    uuid: str | None = None
    pci: str | None = None
    granularity_minimum: Whole | None = None
    granularity_recommended: Whole | None = None


class LockedMachine(PlanModel):
    """The facts of the machine that a layout depends on."""

    runtime: str
    hip_version: str | None = None
    devices: dict[str, LockedDevice]


class Lock(PlanModel):
    """The contents of a lock file."""

    hipplan_lock: Literal[1, 2]
    """1 has a line for each chunk of a region."""
    plan: LockedPlan
    machine: LockedMachine
    sizes: dict[str, Whole]
    """Bytes that each object takes, padding included; kv#0..99 stands for a hundred (families.py)."""
    addresses: dict[str, Annotated[int, Field(ge=1, lt=2**64)]]
    """Where each reservation is. 0 would be no address, but any."""


def lock(program: Program, base: int | None = None) -> Lock:
    """Make the lock of a program.

    base: the address for the first reservation. None: a place in WINDOW, derived from the plan's name.

    Reservations with an exact address of their own keep it. Raises MachineError (HP322) if there is no room.
    """
    return Lock(
        hipplan_lock=2,
        plan=LockedPlan(name=program.name, digest=program.digest, variables=program.variables),
        machine=_machine(program),
        sizes=families.sizes_of(program),
        addresses=addresses_for(program, base),
    )


def sizes_of(locked: Locked | None) -> Sizes:
    """Bytes by name, for compile(): the sizes that a plan leaves open are those of its lock."""
    return NONE_KNOWN if locked is None else locked.lock.sizes


def to_yaml(locked: Lock) -> str:
    """The text of the lock's file; Locked reads it back to an equal Lock."""
    data = locked.model_dump(exclude_none=True)
    data["addresses"] = {name: _Address(address) for name, address in locked.addresses.items()}
    heading = "# Made by `hipplan lock`; `hipplan apply --locked` applies exactly this, or fails and reports why.\n"
    return heading + yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


class Locked:
    """A lock read from a file, with the place of each value in it. Raises PlanError if the file is no lock."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._source = load_yaml(Path(path), wanted="lock")
        problems = list(self._source.findings)
        try:
            self.lock = Lock.model_validate(self._source.data)
        except ValidationError as error:
            from hipplan.language.model.translate import translate  # for errors alone

            problems += translate(error, Lock, self._source.data, self._source.span)
        if problems:
            raise PlanError(in_order(problems))

    def placed(self, program: Program, profile: Machine | None = None) -> Program:
        """Check the program against the lock, and return it with the lock's address for every reservation.

        profile: the profile that the simulator plays: a lock for a machine of that kind can be rehearsed on it.
        Figures that the profile does not have are then not compared; notice() names them.
        Raises PlanError (HP320) with each reason why it is another plan, MachineError (HP321) with each reason why it
        is another machine, or the plan becomes something else on it.
        """
        plan = list(self._other_plan(program))
        machine = list(self._other_machine(program, self._rehearsed(program, profile)))
        if plan:
            raise PlanError([*plan, *machine])
        if other := [*machine, *self._other_objects(program)]:
            raise MachineError(other)
        return at_addresses(program, self.lock.addresses)

    def notice(self, program: Program, profile: Machine | None) -> str:
        """A notice of what a rehearsal did not compare; empty if this is no rehearsal."""
        if not (rehearsed := self._rehearsed(program, profile)):
            return ""
        then, now = self.lock.machine, _machine(program, rehearsed)
        unknown = [key for key in LockedMachine.model_fields if None in (getattr(then, key), getattr(now, key))]
        for key in LockedDevice.model_fields:
            both = ((getattr(device, key), getattr(now.devices[name], key)) for name, device in then.devices.items())
            unknown += [key] if any(None in pair for pair in both) else []
        shown = ", ".join(["the driver itself", *(key.replace("_", " ") for key in unknown)])
        return f"the lock is rehearsed on the simulator as {rehearsed.name}; not compared: {shown}"

    def _rehearsed(self, program: Program, profile: Machine | None) -> Machine | None:
        """The profile to compare with the lock's machine in a rehearsal; None: compare this machine."""
        here = program.measured.runtime if program.measured else ""
        return profile if here == "sim" and self.lock.machine.runtime != here else None

    def _other_plan(self, program: Program) -> Iterator[Diagnostic]:
        locked = self.lock.plan
        if locked.digest == program.digest:
            return
        names = {**locked.variables, **program.variables}
        changed = [n for n in names if locked.variables.get(n) != program.variables.get(n)]
        for name in changed:
            then, now = (v.variables.get(name, "not there") for v in (locked, program))
            hint = f"--var {name}={then}" if name in locked.variables else "lock it again: hipplan lock"
            yield self._finding(
                "HP320", f"the variable '{name}' is {now}; in the lock it is {then}", ("plan", "variables", name), hint
            )
        if not changed:
            why = f"its digest is {program.digest[:12]}..., and was {locked.digest[:12]}..."
            hint = "use the locked plan, or lock this one: hipplan lock"
            summary = f"'{program.name}' is not the locked plan"
            other = self._finding("HP320", summary, ("plan", "digest"), hint, why)
            yield replace(other, notes=tuple(self._differences(program)))

    def _differences(self, program: Program) -> Iterator[str]:
        """The objects whose size differs from the lock. A mapping has its memory's size and is not listed beside it."""
        locked, sizes = self._sizes(program)
        other = [name for name in {**locked, **sizes} if locked.get(name) != sizes.get(name)]
        asked = {resource.name: resource for resource in program.resources}
        other = [name for name in other if getattr(asked.get(name), "memory", "") not in other]
        for name in other[:DIFFERENCES_MAX]:
            was = f"{full_size(locked[name])} locked" if name in locked else "not locked"
            if name in sizes:
                now = f"takes {full_size(sizes[name])}, {full_size(asked[name].asked)} asked"
            else:
                now = "is not there"
            yield f"differs: '{name}' {now}; {was}"
        if len(other) > DIFFERENCES_MAX:
            yield f"differs: {len(other) - DIFFERENCES_MAX} more"
        if not other:
            yield "names and sizes of all objects are equal; their order, devices, access or contents differ"

    def _sizes(self, program: Program) -> tuple[families.Sizes, families.Sizes]:
        """(locked, now) of each object, if they differ; if they do not, of families."""
        locked, now = families.in_families(self.lock.sizes.items()), families.sizes_of(program)
        return (locked, now) if locked == now else (families.one_by_one(locked), families.one_by_one(now))

    def _other_machine(self, program: Program, rehearsed: Machine | None) -> Iterator[Diagnostic]:
        then, now = self.lock.machine, _machine(program, rehearsed)
        for key in ("runtime", "hip_version"):
            yield from self._compare(f"the {key.replace('_', ' ')}", then, now, key, ("machine", key), rehearsed)
        for name, device in then.devices.items():
            path: tuple[Hashable, ...] = ("machine", "devices", name)
            if name not in now.devices:
                yield self._finding("HP321", f"this machine has no device '{name}'", path)
                continue
            for key in LockedDevice.model_fields:
                what = f"the {key.replace('_', ' ')} of {name}"
                yield from self._compare(what, device, now.devices[name], key, (*path, key), rehearsed)

    def _other_objects(self, program: Program) -> Iterator[Diagnostic]:
        locked, sizes = self._sizes(program)
        reserved = program.reservations.keys()
        for name in {**locked, **sizes}:
            was, size = locked.get(name), sizes.get(name)
            if was != size:
                texts = [("not there" if s is None else full_size(s)) for s in (size, was)]
                yield self._finding("HP321", f"'{name}' is {texts[0]}; in the lock it is {texts[1]}", ("sizes", name))
        for name in sorted(reserved ^ set(self.lock.addresses)):
            yield self._finding(
                "HP321", f"the lock and the plan differ in the reservation '{name}'", ("addresses", name)
            )

    def _compare(
        self,
        what: str,
        then: PlanModel,
        now: PlanModel,
        key: str,
        path: Sequence[Hashable],
        rehearsed: Machine | None,
    ) -> Iterator[Diagnostic]:
        was, is_now = getattr(then, key), getattr(now, key)
        same = has_arch(is_now, was) if key == "arch" and was and is_now else was == is_now
        unknown = rehearsed is not None and is_now is None
        if was is not None and not same and not unknown:
            hint = (
                "to rehearse the lock, choose the simulated machine: --machine"
                if (key, is_now) == ("runtime", "sim")
                else ""
            )
            shown = "not known" if is_now is None else is_now
            yield self._finding("HP321", f"{what} is {shown}; in the lock it is {was}", path, hint)

    def _finding(self, code: str, summary: str, path: Sequence[Hashable], hint: str = "", why: str = "") -> Diagnostic:
        place: Span | None = self._source.span(path)
        return Diagnostic(code, summary, place, why=why, hint=hint)


def _machine(program: Program, rehearsed: Machine | None = None) -> LockedMachine:
    machine: Machine | None = rehearsed or program.measured
    assert machine is not None, "every program of the compiler has one"
    keys = [key for key in LockedDevice.model_fields if key != "ordinal"]
    devices = {
        name: LockedDevice(ordinal=ordinal, **{key: getattr(machine.devices[ordinal], key) for key in keys})
        for name, ordinal in program.devices.items()
    }
    return LockedMachine(runtime=machine.runtime, hip_version=machine.hip_version, devices=devices)


class _Address(int):
    """An integer that is written in hexadecimal."""


class _Dumper(Dumper):
    pass


_Dumper.add_representer(_Address, lambda dumper, value: dumper.represent_scalar("tag:yaml.org,2002:int", f"{value:#x}"))
