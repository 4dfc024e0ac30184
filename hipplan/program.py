"""What the compiler makes of a plan: the steps in order, and the resources they give, for people and reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hipplan.content_steps import ContentStep
from hipplan.errors import Diagnostic
from hipplan.steps import CreateAllocation, ImportAllocation, Map, SetAccess, Step

if TYPE_CHECKING:
    from hipplan.profiles import Machine
    from hipplan.regions import PlacedRegion


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One object of a layout as a user sees it."""

    name: str
    kind: str
    """allocation, reservation, mapping, region, tensor, device, pinned, registered, managed, stream or peer."""
    device: str
    """The plan's name for where it is; `host`, or empty where that means nothing."""
    asked: int = 0
    """Bytes the plan asked for."""
    size: int = 0
    """Bytes it takes: asked, padded."""
    access: tuple[tuple[str, str], ...] = ()
    """(device name, right) of a mapping, region or tensor."""
    inside: str = ""
    """The reservation a mapping lies in, the region a tensor lies in."""
    offset: int = 0
    """Bytes from the start of `inside`."""
    memory: str = ""
    """The allocation behind a mapping."""
    read_only: bool = False
    """Nobody may write it: a file registered read-only."""
    imported: bool = False
    """Somebody else's allocation: its memory is in use already."""
    dtype: str = ""
    """Of a tensor: its name in hipplan.dtypes."""
    shape: tuple[int, ...] = ()
    """Of a tensor."""
    held_by: tuple[tuple[str, int], ...] = ()
    """(device, bytes) of a region or tensor over several devices."""

    @property
    def waste(self) -> int:
        """Bytes that are only padding."""
        return self.size - self.asked

    @property
    def takes_memory(self) -> bool:
        """Of the device it is on: memory that is free before it is made."""
        return self.kind in ("allocation", "device") and not self.imported


_READ_TOGETHER = frozenset({CreateAllocation, Map, SetAccess})


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
    resources: tuple[Resource, ...]
    warnings: tuple[Diagnostic, ...] = ()
    host_visible: frozenset[str] = frozenset()
    """Devices whose memory the CPU may touch through its address."""
    ranges_told: bool = False
    """Managed ranges tell their attributes. Without driver support (HMM) advice succeeds, does nothing and
    cannot be asked."""
    regions: Mapping[str, PlacedRegion] = field(default_factory=dict)
    """The regions by name: what growing them needs to know."""
    sealed: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    """Mappings that nobody may write for now -> who could before: (device name, right)."""

    contents: tuple[ContentStep, ...] = ()
    """Those of the steps that fill memory."""

    def __repr__(self) -> str:
        return f"<hipplan.Program '{self.name}' for {self.machine}: {len(self.steps)} steps>"

    @cached_property
    def read_singly(self) -> tuple[tuple[int, Step], ...]:
        """(number, step) of all but those that are read back by the thousand; a program is read back many times."""
        return tuple((n, step) for n, step in enumerate(self.steps) if type(step) not in _READ_TOGETHER)

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone: what is kept besides is made anew, and may need the compiled part."""
        return {name: value for name, value in vars(self).items() if name in self.__dataclass_fields__}

    def bytes_by_device(self) -> dict[str, int]:
        """Device memory that the plan takes, padding included, what is imported left out, by device name."""
        out = dict.fromkeys(self.devices, 0)
        for resource in self.resources:
            if resource.takes_memory and resource.device in out:
                out[resource.device] += resource.size
        return out


def descriptors_of(steps: Iterable[Step]) -> int:
    """File descriptors, at most: AMD's runtime takes one for each allocation, hipplan keeps one of what is shared."""
    made = [step for step in steps if isinstance(step, (CreateAllocation, ImportAllocation))]
    return len(made) + sum(isinstance(step, ImportAllocation) or step.handle_type != 0 for step in made)
