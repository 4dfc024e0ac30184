"""Steps: one state-changing driver call each, as plain data. The compiled part runs them as rows (hipplan/lowering).

A step either happened or did not. The object's owner exists before the call, so no step needs its own undo: roll back
and teardown free objects, latest first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from hipplan.errors import ApplyError, Diagnostic, Span
from hipplan.language.host import HOST
from hipplan.program.checks import Check, Reading, Words
from hipplan.units import format_size, short_size

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform

    from hipplan.machines.machine import Machine
else:

    def dataclass_transform(**_: Any) -> Any:
        """Python 3.10 has none, and only type checkers look at it."""
        return lambda decorator: decorator


_Kind = TypeVar("_Kind")

Key = tuple[object, ...]
"""(kind, and what tells its objects apart) of an object that a step makes: mostly its name."""

Rights = tuple[tuple[int, str], ...]
"""(ordinal or CPU_ORDINAL, right) of each device that has a right."""

RANK_SIGN = "@"
"""Rank 2's region 'heap' and device 'gpu' are called 'heap@2' and 'gpu@2' in other ranks. Names in plans have no such
sign (parts.py)."""

CPU_ORDINAL = -1
"""The ordinal that stands for the CPU: hipCpuDeviceId."""
UNSEEN = -2
"""The ordinal of another rank's device that this process does not see or use."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def step_data(kind: type[_Kind]) -> type[_Kind]:
    """A dataclass that mypy treats as frozen. A really frozen one takes three times as long to make, and programs have
    thousands. Steps of frequent kinds are made with positional arguments, which is twice as fast as keywords."""
    return dataclass(slots=True, unsafe_hash=True)(kind)


@step_data
class Step:
    """What every step has: the plan's name for the object, and its place in the plan."""

    call: ClassVar[str]
    """The HIP function this step calls."""
    makes: ClassVar[str] = ""
    """The kind of object that it makes; empty where it makes none."""
    owns_memory: ClassVar[bool] = False
    """Whether it makes an allocation with memory of this process, which can move, sleep and be exported."""
    is_import: ClassVar[bool] = False
    """Whether it makes an allocation of another process's memory."""
    is_content: ClassVar[bool] = False
    """Whether it moves bytes of what other steps make: contents come last, because no roll back restores bytes."""
    is_fixed: ClassVar[bool] = False
    """For a step about an object: whether the object has to be made again where this step differs."""
    awaits_stream: ClassVar[bool] = False
    """Whether it does nothing but wait for work in a stream."""
    takes_out: ClassVar[bool] = False
    """Whether it unmaps a mapping of the old layout."""
    is_repeated: ClassVar[bool] = False
    """For a step about an object: whether it is done again where it differs, and the object stays."""
    why_awake: ClassVar[str] = ""
    """Why its object cannot sleep by itself; empty where it can."""
    instead_of_sleep: ClassVar[str] = ""
    """What to do about that."""
    why_not_held: ClassVar[str] = ""
    """Why a holder cannot hold its object; empty where it can."""

    name: str
    origin: Span | None

    def describe(self) -> str:
        """One line of text, without the name."""
        raise NotImplementedError

    @property
    def key(self) -> Key | None:
        """The key of its object, equal in two programs for the same object; None for a step that makes none."""
        return (self.makes, self.name) if self.makes else None

    @property
    def needs(self) -> tuple[Key, ...]:
        """The keys of other objects without which it cannot be done, and without which its object cannot stay."""
        return ()

    def altered(self, before: Sequence[Step], now: Sequence[Step]) -> Iterator[Step]:
        """The steps that alter its object, which stays. before, now: the steps about it that make nothing."""
        return iter(())

    def listed(self) -> str:
        """What the list of a change says of it; empty where the line of its object says all."""
        return ""

    @property
    def owner(self) -> int | None:
        """Whose memory its allocation is, as of facts.Owners; None where it makes no allocation."""
        return None

    @property
    def descriptors(self) -> int:
        """File descriptors that its allocation takes, at most: AMD's runtime takes one, hipplan one that is shared."""
        return 0

    @property
    def is_shareable(self) -> bool:
        """Whether another process may get the memory of its allocation."""
        return False

    @property
    def is_for_network(self) -> bool:
        """Whether network cards reach its memory, and so only where it is now."""
        return False

    def exportable(self) -> Step:
        """The same step, whose allocation other processes may get if its memory is this process's."""
        return self

    def moved_to(self, number: int, location: str) -> Step:
        """The same step with the memory of its allocation there. number: the ordinal, or the NUMA node."""
        return self

    @property
    def is_on_device(self) -> bool:
        """Whether it owns memory of a device."""
        return False

    @property
    def is_on_host(self) -> bool:
        """Whether it owns memory of the host."""
        return False

    @property
    def passed_as(self) -> str:
        """The name in the caller's `bind` of what it is made of; empty where the caller passes nothing for it."""
        return ""

    @property
    def from_rank(self) -> int:
        """The rank of the group that sends the memory that it imports; -1: none does."""
        return -1

    @property
    def stream_used(self) -> tuple[str, int] | None:
        """(stream, its device) in which it enqueues work, or whose work it awaits; None for most."""
        return None

    def taken_from(self, machine: Machine | None) -> int | None:
        """The ordinal of the device that it takes its `size` bytes from, CPU_ORDINAL for the host; None: from none, or
        from wherever managed memory moves to."""
        return None

    def checks(self, reading: Reading) -> Iterator[Check]:
        """Compares it with what HIP reports about its object: nothing of most."""
        return iter(())

    def read_back(self, values: Iterator[int], words: Words, devices: Mapping[str, int]) -> Iterator[Check]:
        """Compares it with numbers that native code has read for it, where it reads all of a kind at once. values:
        those of this step and of later ones. devices: the plan's names -> ordinals."""
        return iter(())

    def range_checks(self, about: Sequence[Step], reading: Reading) -> Iterator[Check]:
        """Compares parts of its object with what HIP reports. about: the steps about it that make nothing."""
        return iter(())


def named(step: Step) -> Callable[[str], Step]:
    """A function that makes the same step for another name."""
    kind: Callable[..., Step] = type(step)
    others = [getattr(step, field) for field in _fields_after_name(kind)]
    return lambda name: kind(name, *others)


@cache
def _fields_after_name(kind: Callable[..., Step]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))[1:]  # type: ignore[arg-type]


@step_data
class CreateAllocation(Step):
    call = "hipMemCreate"
    makes = "allocation"
    owns_memory = True
    device: int
    size: int
    """Bytes, padded to the granularity."""
    asked: int
    """Bytes that the plan requests."""
    type: str
    """pinned or uncached."""
    location: str
    """device, host or host_numa."""
    shareable: str
    """none or posix_fd."""
    rdma: bool = False
    """Whether network cards may reach it."""

    def describe(self) -> str:
        node = f"NUMA node {self.device}"
        where = {"device": f"device {self.device}", "host": "the host", "host_numa": node}[self.location]
        return f"{short_size(self.size)} on {where}" + ", for RDMA" * self.rdma

    @property
    def owner(self) -> int:
        return self.device if self.location == "device" else CPU_ORDINAL

    @property
    def descriptors(self) -> int:
        return 1 + (self.shareable != "none")

    @property
    def is_shareable(self) -> bool:
        return self.shareable != "none"

    @property
    def is_for_network(self) -> bool:
        return self.rdma

    def exportable(self) -> CreateAllocation:
        return replace(self, shareable="posix_fd")

    def moved_to(self, number: int, location: str) -> CreateAllocation:
        return replace(self, device=number, location=location)

    @property
    def is_on_device(self) -> bool:
        return self.location == "device"

    @property
    def is_on_host(self) -> bool:
        return self.location != "device"

    def read_back(self, values: Iterator[int], words: Words, devices: Mapping[str, int]) -> Iterator[Check]:
        location, device, kind, handle = islice(values, 4)
        current = _place(words("location", location), device)
        if self.location == "host" and words("location", location) == "host_numa":
            current = self.location  # CUDA's memory of the host is always on some node
        yield Check(self.name, "location", _place(self.location, self.device), current)
        yield Check(self.name, "type", self.type, words("type", kind))
        yield Check(self.name, "shareable", self.shareable, words("shareable", handle))
        if self.rdma:
            yield Check(self.name, "rdma", "yes", "yes" if next(values) else "no")

    def taken_from(self, machine: Machine | None) -> int:
        return self.owner


def _place(location: str, number: int) -> str:
    return {"device": f"device {number}", "host_numa": f"NUMA node {number}"}.get(location, location)


@step_data
class ImportAllocation(Step):
    call = "hipMemImportFromShareableHandle"
    makes = "allocation"
    is_import = True
    why_not_held = "it is imported: the process that made it holds it"
    bind: str
    """The name in the caller's `bind`; for another rank's memory, the allocation's name in that rank."""
    device: int
    """The device that holds the memory, according to the plan: the descriptor cannot be asked."""
    size: int
    asked: int
    rank: int = -1
    """The rank of the group that sends the descriptor; -1: the caller passes it."""
    holder: str = ""
    """The name in reports of another rank's device."""

    def describe(self) -> str:
        if self.rank >= 0:
            return f"{short_size(self.size)} of rank {self.rank} on {self.holder}"
        return f"{short_size(self.size)} from the caller's descriptor '{self.bind}'"

    @property
    def owner(self) -> int:
        return self.device if self.device >= 0 else UNSEEN  # the host's: HIP takes it for the current device's

    @property
    def descriptors(self) -> int:
        return 2

    @property
    def is_shareable(self) -> bool:
        return True

    @property
    def passed_as(self) -> str:
        return "" if self.rank >= 0 else self.bind

    @property
    def from_rank(self) -> int:
        return self.rank


@step_data
class Reserve(Step):
    call = "hipMemAddressReserve"
    makes = "reservation"
    size: int
    asked: int
    alignment: int
    """Bytes, a power of two; 0 for none."""
    slack: int
    """Bytes reserved beyond size so that an aligned base fits: HIP checks the alignment but ignores it."""
    address: int
    """The address wanted; 0 for any."""
    exact: bool

    def describe(self) -> str:
        at = f" at {self.address:#x}" + ("" if self.exact else " if free") if self.address else ""
        return f"{short_size(self.size)} of addresses{at}"

    def checks(self, reading: Reading) -> Iterator[Check]:
        if self.alignment:
            rest = reading.address_of(self.name) % self.alignment
            yield Check(self.name, f"address modulo {self.alignment}", "0", str(rest))

    def not_had(self, why: str, placed_at: int) -> ApplyError:
        """HP404: the address cannot be had that it requires. placed_at: where the driver put it."""
        hint = (
            "choose another address, or use address_policy: prefer; "
            "if the address is from a lock, lock again with --address-base"
        )
        summary, notes = f"'{self.name}' cannot be at {self.address:#x}", (f"the driver placed it at {placed_at:#x}",)
        return ApplyError(Diagnostic("HP404", summary, self.origin, why=why, hint=hint, notes=notes))


@step_data
class Map(Step):
    call = "hipMemMap"
    makes = "mapping"
    reservation: str
    allocation: str
    offset: int
    size: int
    asked: int

    @property
    def key(self) -> Key:
        return "mapping", self.reservation, self.offset

    @property
    def needs(self) -> tuple[Key, ...]:
        return ("reservation", self.reservation), ("allocation", self.allocation)

    def describe(self) -> str:
        return f"{short_size(self.size)} of {self.allocation} at +{format_size(self.offset)}"

    def read_back(self, values: Iterator[int], words: Words, devices: Mapping[str, int]) -> Iterator[Check]:
        address, base, size = islice(values, 3)
        yield Check(self.name, "mapped piece", f"{self.size} at {address:#x}", f"{size} at {base:#x}")


@step_data
class SetAccess(Step):
    call = "hipMemSetAccess"
    rights: Rights
    """The devices that get access to the whole mapping, and what they may do."""
    together: bool = False
    """The call covers everything mapped in the reservation so far, which has the same rights. Lowering decides that."""

    def describe(self) -> str:
        who = (f"{'host' if o == CPU_ORDINAL else f'device {o}'}: {right}" for o, right in self.rights)
        return ", ".join(who) + (", for everything mapped in the range" if self.together else "")

    def read_back(self, values: Iterator[int], words: Words, devices: Mapping[str, int]) -> Iterator[Check]:
        # A device of the plan that is not named must have no access. HIP does not report the host's.
        desired = dict(self.rights)
        for (name, ordinal), current in zip(devices.items(), values):  # noqa: B905
            yield Check(self.name, f"access of {name}", desired.get(ordinal, "none"), words("access", current))


def rights_of(access: Mapping[str, str], ordinals: Mapping[str, int]) -> Rights:
    """SetAccess.rights from a plan's access. ordinals: of the plan's devices; KeyError for another."""
    given = ((who, right) for who, right in access.items() if right != "none")
    return tuple((CPU_ORDINAL if who == HOST else ordinals[who], right) for who, right in given)
