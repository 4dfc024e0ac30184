"""What a layout is at one time. A change in place makes another one; which one counts is a single assignment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from hipplan.live import Live
from hipplan.program import Program, Resource
from hipplan.verify import Check

INSIDE = ("mapping", "tensor")
_WITHOUT_OWN_ADDRESS = (*INSIDE, "allocation", "stream", "peer")


@dataclass(frozen=True)
class State:
    """A program and the names of what it has made."""

    program: Program
    live: Live
    checks: Sequence[Check]
    """What was read back last."""
    end: int
    """The first journal entry that is not part of it."""

    @cached_property
    def resources(self) -> dict[str, Resource]:
        """By name; made when somebody asks, because layouts of thousands of mappings are often only held."""
        return {resource.name: resource for resource in self.program.resources}

    @cached_property
    def _addresses(self) -> dict[str, int]:
        return {
            resource.name: self.live.address(resource.name)
            for resource in self.program.resources
            if resource.kind not in _WITHOUT_OWN_ADDRESS
        }

    def address(self, resource: Resource) -> int | None:
        """Where something begins; None for what has no address."""
        if resource.kind in INSIDE:
            return self._addresses[resource.inside] + resource.offset
        return self._addresses.get(resource.name)
