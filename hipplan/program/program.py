"""What the compiler makes of a plan: the steps in order, and what they give, seen from several sides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from hipplan.errors import Diagnostic
from hipplan.language.model import Attached
from hipplan.language.rank import Rank
from hipplan.machines.machine import Machine
from hipplan.program.backups import Backup
from hipplan.program.content_steps import CONTENT_STEPS, ContentStep
from hipplan.program.inventory import resources_of
from hipplan.program.regions import PlacedRegion, SharedRegion
from hipplan.program.resources import Resource
from hipplan.program.rows import slots_of
from hipplan.program.steps import (
    CreateAllocation,
    CreateDeviceBuffer,
    ImportAllocation,
    Map,
    RegisterBuffer,
    SetAccess,
    Step,
)

_THOUSANDS = frozenset({CreateAllocation, Map, SetAccess})


@dataclass(frozen=True, kw_only=True, repr=False)
class Program:
    """A plan made concrete for one machine. Deterministic: the same plan and machine give an equal program."""

    name: str
    source: str
    """What messages call the document."""
    digest: str
    machine: str
    devices: dict[str, int]
    """The plan's device names -> ordinals."""
    selectors: dict[str, str]
    """The plan's device names -> what chose the device, in words."""
    current_device: int = 0
    """The ordinal that `current: true` selectors mean, in updates of its layout too."""
    variables: dict[str, Any] = field(default_factory=dict)
    """What the plan's variables are set to."""
    measured: Machine | None = None
    """The machine it is made for."""
    steps: tuple[Step, ...]
    """All steps, in order: the only place that defines them. What is sealed is made open where contents are to
    come in, and sealed behind them (sealing.py)."""
    warnings: tuple[Diagnostic, ...] = ()
    host_visible: frozenset[str] = frozenset()
    """Devices whose memory the CPU may touch through its address."""
    ranges_told: bool = False
    """Managed ranges report their attributes. Without driver support (HMM) advice succeeds, does nothing and
    cannot be asked."""
    regions: Mapping[str, PlacedRegion] = field(default_factory=dict)
    """The regions by name: what growing them needs to know."""
    sealed: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    """Mappings that are read-only for now -> the access before: (device name, right)."""
    attached: Mapping[str, Attached] = field(default_factory=dict)
    """What processes that attach to a holder may do, where that is not r, or not that of the reservation: regions,
    reservations and mappings by name."""
    rank: Rank = field(default_factory=Rank)
    """Whose program it is, of a plan for ranks."""
    plan_of_all: str = ""
    """Of a plan for ranks: the digest of what is the same for all of them."""
    shared: Mapping[str, SharedRegion] = field(default_factory=dict)
    """Regions of the plan that one rank makes and others map, by name."""
    parts: Mapping[str, int] = field(default_factory=dict)
    """Regions that are other ranks' memory -> the rank (parts.py)."""
    beside: Mapping[str, int] = field(default_factory=dict)
    """Device -> bytes that other ranks of the node take on it, of those who share memory."""

    sleeping: tuple[Step, ...] = ()
    """What made the memory and mappings that sleep, and makes them again when they wake (sleeping.py)."""
    backups: Mapping[str, Backup] = field(default_factory=dict)
    """Allocation -> where its bytes are while it sleeps, or were and may be again."""

    def __repr__(self) -> str:
        return f"<hipplan.Program '{self.name}' for {self.machine}: {len(self.steps)} steps>"

    @cached_property
    def nothing(self) -> Program:
        """The program without all of it: what its layout is before an apply."""
        return replace(self, steps=(), regions={}, sealed={}, sleeping=(), backups={})

    @cached_property
    def resources(self) -> tuple[Resource, ...]:
        """The objects as reports show them, made from the steps and regions."""
        return resources_of(
            self.steps, self.regions, self.devices, self.sealed, self.sleeping, self.backups, self.attached
        )

    @cached_property
    def asleep(self) -> dict[str, str]:
        """What sleeps -> where its bytes are (backups.py): allocations, mappings, regions and tensors."""
        return (
            {resource.name: resource.asleep for resource in self.resources if resource.asleep} if self.sleeping else {}
        )

    def sleeps(self, name: str) -> bool:
        """Whether something does, or something in it."""
        return any(
            resource.asleep and name in (resource.name, resource.inside) for resource in self.resources if self.sleeping
        )

    @cached_property
    def contents(self) -> tuple[ContentStep, ...]:
        """Those of the steps that fill memory."""
        return tuple(step for _, step in self.single if isinstance(step, CONTENT_STEPS))

    @cached_property
    def making(self) -> tuple[Step, ...]:
        """All steps but the contents."""
        if not self.contents:
            return self.steps
        return tuple(step for step in self.steps if not isinstance(step, CONTENT_STEPS))

    @cached_property
    def bindings(self) -> tuple[ImportAllocation | RegisterBuffer, ...]:
        """Steps that take what the caller of apply passes by name."""
        binding = (s for _, s in self.single if isinstance(s, (ImportAllocation, RegisterBuffer)) and s.bind)
        return tuple(s for s in binding if isinstance(s, RegisterBuffer) or s.rank < 0)

    @cached_property
    def slots(self) -> dict[str, int]:
        """The slot of each object that a step makes, in the snapshots of its layouts."""
        return slots_of(self.steps)

    def goes_on_from(self, other: Program, more: tuple[Step, ...]) -> None:
        """Takes over what is known of a program that this one goes on from: growing costs the same however much there
        is. more: the steps that came, none of which takes what the caller passes."""
        slots = enumerate((step.name for step in more if step.makes), len(other.slots))
        vars(self)["slots"] = {**other.slots, **{name: slot for slot, name in slots}}
        vars(self)["bindings"] = other.bindings
        vars(self)["contents"] = other.contents

    @cached_property
    def single(self) -> tuple[tuple[int, Step], ...]:
        """(number, step) of all but those that there are thousands of, and that are read back together."""
        return tuple((n, step) for n, step in enumerate(self.steps) if type(step) not in _THOUSANDS)

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone: what is kept besides is recreated, and may need the compiled part."""
        return {name: value for name, value in vars(self).items() if name in self.__dataclass_fields__}

    def bytes_by_device(self) -> dict[str, int]:
        """Device memory that the plan takes, padding included, what is imported left out, by device name."""
        out = dict.fromkeys(self.devices, 0)
        names = {ordinal: name for name, ordinal in self.devices.items()}
        for step in self.steps:
            if isinstance(step, CreateDeviceBuffer) or (
                isinstance(step, CreateAllocation) and step.location == "device"
            ):
                out[names[step.device]] += step.size
        return out


def descriptors_of(steps: Iterable[Step]) -> int:
    """File descriptors, at most: AMD's runtime takes one for each allocation, hipplan keeps one of what is shared."""
    made: list[Any] = [step for step in steps if step.makes == "allocation"]
    return len(made) + len([step for step in made if isinstance(step, ImportAllocation) or step.shareable != "none"])
