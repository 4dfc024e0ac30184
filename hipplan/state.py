"""What a layout is at one time. A change in place makes another one; which one counts is a single assignment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from hipplan.live import Live
from hipplan.program import Program, Resource
from hipplan.verify import Check

INSIDE = ("mapping", "tensor")
_WITHOUT_ADDRESS = ("allocation", "stream", "peer")


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

    def address(self, resource: Resource) -> int | None:
        """Where something begins; None for what has no address. IndexError if it was given back since."""
        if resource.kind in _WITHOUT_ADDRESS:
            return None
        inside = resource.inside if resource.kind in INSIDE else resource.name
        return self.live.address(inside) + (resource.offset if resource.kind in INSIDE else 0)
