"""Memory without an address (hipMemCreate), also imported or made again in another place, as steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from hipplan.program.checks import Check, Words
from hipplan.program.steps import CPU_ORDINAL, UNSEEN, Step, step_data
from hipplan.units import short_size

if TYPE_CHECKING:
    from hipplan.machines.machine import Machine


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
class CopyBytes(Step):
    """Copies the bytes of memory that is recreated into its new allocation, which is mapped at a temporary place."""

    call = "hipMemcpyPeer"
    source: str
    in_place: bool
    """The source is a mapping of the old layout, not a temporary one."""
    source_device: int
    target: str
    target_device: int
    size: int

    def describe(self) -> str:
        return f"{short_size(self.size)} from device {self.source_device} to device {self.target_device}"


def before(allocation: str) -> str:
    """The name of an allocation's old memory while the new one exists beside it."""
    return f"{allocation} (before)"
