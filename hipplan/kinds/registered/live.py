"""Existing host memory that is registered (hipHostRegister), as a step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from hipplan.kinds.live import Buffer, Lack, flags_of
from hipplan.program.checks import Check, Reading, check_kind, check_pages
from hipplan.program.steps import Step, step_data
from hipplan.units import short_size

if TYPE_CHECKING:
    from hipplan.kinds.making import Making
    from hipplan.kinds.registered.plan import RegisteredBuffer
    from hipplan.language.objects import ResolvedBuffer
    from hipplan.machines.machine import Machine


@step_data
class RegisterBuffer(Buffer):
    """`size` is 0 for all of the file or of the caller's memory."""

    call = "hipHostRegister"
    makes = "registered"
    lies = "host"
    row = (
        "register buffer", "device", "size", "flags", "file", "bound", "read_only", "bound_node", "huge_pages",
    )  # fmt: skip
    why_awake = "it is host memory"
    why_not_held = "registered memory belongs to one process"

    flags: tuple[str, ...] = ()
    """The flags of hipHostRegister."""
    file: str = ""
    """Path of the file to map; else `bind`, else fresh memory."""
    bind: str = ""
    read_only: bool = False
    numa_node: int = -1
    huge_pages: str = "none"
    simulated_node: bool = False
    """The simulator plays the node: the memory is not bound to it."""

    def describe(self) -> str:
        fresh = f"fresh on NUMA node {self.numa_node}" if self.numa_node >= 0 else "fresh"
        origin = f"of {self.file}" if self.file else f"of the caller's '{self.bind}'" if self.bind else fresh
        return f"{short_size(self.size) if self.size else 'all'} {origin}, device {self.device} current"

    @classmethod
    def steps_of(cls, buffer: ResolvedBuffer, making: Making) -> Iterator[Step]:
        spec = cast("RegisteredBuffer", buffer.spec)
        device = making.devices[buffer.device]
        fresh = spec.anonymous
        node = making.numa_node(fresh, device)
        yield cls(
            name=buffer.name,
            origin=making.span(*buffer.path),
            device=device,
            size=spec.planned_size(),
            flags=flags_of(spec, "portable", "mapped", "read_only"),
            file=making.path(spec.file) if spec.file else "",
            bind=spec.bind or "",
            read_only=spec.read_only,
            numa_node=node,
            huge_pages="none" if fresh is None else fresh.huge_pages,
            simulated_node=making.is_simulated(node),
        )

    @property
    def bound(self) -> bool:
        return bool(self.bind)

    @property
    def bound_node(self) -> int:
        return -1 if self.simulated_node else self.numa_node

    @property
    def passed_as(self) -> str:
        return self.bind

    def checks(self, reading: Reading) -> Iterator[Check]:
        yield check_kind(self.name, "host", reading.address_of(self.name), reading)
        if not self.simulated_node:
            yield from check_pages(self.name, self.numa_node, reading)

    @staticmethod
    def lacks(spec: Any, machine: Machine, name: str, ordinal: int) -> Iterator[Lack]:
        if spec.file is None and spec.read_only and machine.runtime == "cuda":
            why = "registering private memory read-only can hang"
            yield Lack("HP309", "read_only is for files on CUDA", ("read_only",), why, "remove read_only")
