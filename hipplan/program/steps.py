"""Steps: one state-changing driver call each, as plain data. The compiled part runs them as rows (hipplan/lowering).

A step either happened or did not. The object's owner exists before the call, so no step needs its own undo: roll back
and teardown free objects, latest first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from hipplan.errors import Span
from hipplan.language.host import HOST
from hipplan.program.checks import Check, Reading
from hipplan.units import format_size, short_size

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform

    from hipplan.machines.machine import Machine
else:

    def dataclass_transform(**_: Any) -> Any:
        """Python 3.10 has none, and only type checkers look at it."""
        return lambda decorator: decorator


_Kind = TypeVar("_Kind")

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

    name: str
    origin: Span | None

    def describe(self) -> str:
        """One line of text, without the name."""
        raise NotImplementedError

    def taken_from(self, machine: Machine | None) -> int | None:
        """The ordinal of the device that it takes its `size` bytes from, CPU_ORDINAL for the host; None: from none, or
        from wherever managed memory moves to."""
        return None

    def checks(self, reading: Reading) -> Iterator[Check]:
        """Compares it with what HIP reports about its object: nothing of most."""
        return iter(())


def named(step: Step) -> Callable[[str], Step]:
    """A function that makes the same step for another name."""
    kind: Callable[..., Step] = type(step)
    _, *others = (getattr(step, field.name) for field in fields(kind))  # type: ignore[arg-type]
    return lambda name: kind(name, *others)


@step_data
class EnablePeer(Step):
    call = "hipDeviceEnablePeerAccess"
    makes = "peer"
    device: int
    peer: int

    def describe(self) -> str:
        return f"device {self.device} may reach device {self.peer}"


@step_data
class CreateAllocation(Step):
    call = "hipMemCreate"
    makes = "allocation"
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

    def taken_from(self, machine: Machine | None) -> int:
        return self.device if self.location == "device" else CPU_ORDINAL


@step_data
class ImportAllocation(Step):
    call = "hipMemImportFromShareableHandle"
    makes = "allocation"
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


@step_data
class Map(Step):
    call = "hipMemMap"
    makes = "mapping"
    reservation: str
    allocation: str
    offset: int
    size: int
    asked: int

    def describe(self) -> str:
        return f"{short_size(self.size)} of {self.allocation} at +{format_size(self.offset)}"


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


def rights_of(access: Mapping[str, str], ordinals: Mapping[str, int]) -> Rights:
    """SetAccess.rights from a plan's access. ordinals: of the plan's devices; KeyError for another."""
    given = ((who, right) for who, right in access.items() if right != "none")
    return tuple((CPU_ORDINAL if who == HOST else ordinals[who], right) for who, right in given)


@step_data
class CreateStream(Step):
    call = "hipStreamCreateWithFlags"
    makes = "stream"
    device: int

    def describe(self) -> str:
        return f"on device {self.device}"


@step_data
class AwaitStream(Step):
    """Waits until enqueued work is done. `name` is the stream's; empty: the null stream of `on`."""

    call = "hipStreamSynchronize"
    on: int
    """The device that the stream belongs to, current in the call."""

    def describe(self) -> str:
        return "until it is idle" if self.name else f"until the null stream of device {self.on} is idle"
