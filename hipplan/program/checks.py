"""Checks of what is read back of a layout, and what they may ask of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from hipplan.plain import counted

Words = Callable[[str, int], str]
"""(of what, HIP's number) -> hipplan's word for it."""


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison of desired and current."""

    name: str
    what: str
    desired: str
    current: str

    @property
    def ok(self) -> bool:
        return self.desired == self.current

    def __str__(self) -> str:
        return f"{self.name}: {self.what}: {self.desired}" + ("" if self.ok else f" desired, {self.current} now")


class Pointed(Protocol):
    """What the driver says of an address."""

    @property
    def kind(self) -> str: ...
    @property
    def device(self) -> int: ...


class Queries(Protocol):
    """The questions that a runtime answers about addresses."""

    def pointer_attributes(self, address: int) -> Pointed: ...
    def address_range_of(self, address: int) -> tuple[int, int]: ...
    def host_flags(self, address: int) -> list[str]: ...
    def range_attribute(self, address: int, size: int, attribute: str) -> int: ...
    def accessed_by(self, address: int, size: int) -> list[int]: ...


class Reading(Protocol):
    """A live layout, for those who compare it with its steps."""

    @property
    def runtime(self) -> Queries: ...
    def address_of(self, name: str) -> int: ...
    def page_nodes(self, name: str) -> Mapping[int, int]:
        """NUMA node -> pages of an object on it, as far as the kernel reports them."""
        ...


def check_kind(name: str, kind: str, address: int, reading: Reading) -> Check:
    """The kind of memory that the driver knows at an object's address."""
    return Check(name, "kind", kind, reading.runtime.pointer_attributes(address).kind)


def check_pages(name: str, node: int, reading: Reading) -> Iterator[Check]:
    """Checks memory that must be on a NUMA node: the nodes of its pages, as far as the kernel reports them."""
    page_counts = reading.page_nodes(name) if node >= 0 else {}
    if page_counts:
        others = [
            f"{counted(pages, 'page')} on {other_node}"
            for other_node, pages in sorted(page_counts.items())
            if other_node != node
        ]
        yield Check(name, "NUMA node", str(node), ", ".join(others) or str(node))


def check_place(name: str, device: int, size: int, address: int, reading: Reading) -> Iterator[Check]:
    """Checks memory of a device: the device and the range that the driver knows at its address."""
    have = reading.runtime.pointer_attributes(address)
    yield Check(name, "device", str(device), str(have.device))
    base, current_size = reading.runtime.address_range_of(address)
    desired = f"{size} at {address:#x}"
    # A runtime may round the size up.
    current = desired if current_size >= size and base == address else f"{current_size} at {base:#x}"
    yield Check(name, "range", desired, current)
