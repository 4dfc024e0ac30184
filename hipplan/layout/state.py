"""The state of a layout. A change in place makes a new one; native code decides which one is current."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hipplan import _core
from hipplan.layout.copies import Copies
from hipplan.program.checks import Check
from hipplan.program.lookup import resource_of
from hipplan.program.program import Program
from hipplan.program.resources import Resource

INSIDE = ("mapping", "tensor")
_WITHOUT_ADDRESS = ("allocation", "stream", "peer")


@dataclass(frozen=True)
class State:
    """A program and its native objects, by name. IndexError for objects released since."""

    program: Program
    """The program as planned: what people, locks and other processes read."""
    lowered: Program
    """What native code has: the same, or the program in the pieces that this release of HIP needs (lowering)."""
    runtime: _core.Runtime
    snapshot: _core.Snapshot
    checks: Sequence[Check] = ()
    """What was read back last."""
    bindings: Mapping[str, Any] = field(default_factory=dict)
    """What the caller passed for the program, by name; kept alive while it is used."""
    copies: Copies = field(default_factory=Copies)
    """The copies of sleeping bytes."""

    def resource(self, name: str) -> Resource:
        """One of its objects. Raises KeyError."""
        resource = resource_of(self.program, name)
        if resource is None:
            raise KeyError(name)
        return resource

    def address(self, resource: Resource) -> int | None:
        """A resource's address; None if it has none."""
        if resource.kind in _WITHOUT_ADDRESS:
            return None
        inside = resource.inside if resource.kind in INSIDE else resource.name
        return self.address_of(inside) + (resource.offset if resource.kind in INSIDE else 0)

    def __contains__(self, name: object) -> bool:
        slot = self.lowered.slots.get(name)  # type: ignore[call-overload]
        return slot is not None and slot in self.snapshot

    def slot(self, name: str) -> int:
        """The slot of a step's object in the snapshot. Raises KeyError."""
        return self.lowered.slots[name]

    def address_of(self, name: str) -> int:
        """The address of a step's object; of a reservation its aligned base."""
        return self.snapshot.address(self.slot(name))

    def size_of(self, name: str) -> int:
        """Bytes, as the native owner knows them; of a reservation from its aligned base on."""
        return self.snapshot.size_bytes(self.slot(name))

    def page_nodes(self, name: str) -> dict[int, int]:
        """NUMA node -> pages of a step's object on it, as far as the kernel reports them."""
        return _core.page_nodes(self.address_of(name), self.size_of(name))

    def handle_of(self, name: str) -> int:
        """The driver's handle of an allocation."""
        return self.snapshot.handle(self.slot(name))

    def stream_of(self, name: str) -> int:
        """The driver's handle of a stream."""
        return self.snapshot.stream_handle(self.slot(name))
