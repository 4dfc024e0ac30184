"""Huge pages that buffers take, and those of which the host has too few."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hipplan.kinds.live import Buffer
from hipplan.machines.machine import HUGE_PAGE_SIZES, HugePages, HugePageSize, Machine
from hipplan.plain import counted
from hipplan.program.steps import Step
from hipplan.units import parse_size

_ANY = -1
Pages = Counter[tuple[HugePageSize, int]]
"""(size, NUMA node or -1 for any) -> count."""

_FOLDERS: dict[HugePageSize, str] = {"2MiB": "hugepages-2048kB", "1GiB": "hugepages-1048576kB"}


class Shortage(NamedTuple):
    """Huge pages of one size of which too few are free."""

    size: HugePageSize
    node: int
    """The NUMA node that lacks them; -1: the host."""
    needed: int
    free: int

    @property
    def what(self) -> str:
        """The pages in words."""
        where = f" on NUMA node {self.node}" if self.node != _ANY else ""
        return f"{counted(self.needed, 'huge page')} of {self.size}{where}; {self.free} can be had"

    @property
    def hint(self) -> str:
        """How to have more of them."""
        place = "kernel/mm" if self.node == _ANY else f"devices/system/node/node{self.node}"
        is_default = (self.size, self.node) == ("2MiB", _ANY)
        setting = (
            "vm.nr_hugepages (sysctl)" if is_default else f"/sys/{place}/hugepages/{_FOLDERS[self.size]}/nr_hugepages"
        )
        more = self.needed - self.free
        return f"raise {setting} by {more}, best at boot, or write `huge_pages: transparent`, which needs none"


def taken(some_steps: Iterable[tuple[Step, int]]) -> Pages:
    """The huge pages that steps take. some_steps: (step, how many like it)."""
    pages: Pages = Counter()
    for step, many in some_steps:
        if isinstance(step, Buffer) and step.huge_pages != "none" and (size := _size(step)) is not None:
            pages[size, step.bound_node] += many * -(-step.size // parse_size(size))
    return pages


def _size(step: Buffer) -> HugePageSize | None:
    return next((size for size in HUGE_PAGE_SIZES if size == step.huge_pages), None)


def shortages(some_steps: Iterable[tuple[Step, int]], machine: Machine) -> Iterator[Shortage]:
    """Where steps take more huge pages than the host has, as far as that is known. some_steps: as of taken()."""
    pages = taken(some_steps)
    for size, free in machine.limits.huge_pages.items():
        if (needed := _of_size(pages, size)) > free:
            yield Shortage(size, _ANY, needed, free)
            continue
        for there in machine.numa_nodes:
            if (needed := pages[size, there.node]) > there.huge_pages.get(size, needed):
                yield Shortage(size, there.node, needed, there.huge_pages[size])


def freed(machine: Machine, some_steps: Iterable[tuple[Step, int]]) -> Machine:
    """The machine as if the huge pages that steps take were free. some_steps: as of taken()."""
    pages = taken(some_steps)
    if not pages:
        return machine
    free: HugePages = {size: count + _of_size(pages, size) for size, count in machine.limits.huge_pages.items()}
    nodes = [
        there.model_copy(
            update={"huge_pages": {size: count + pages[size, there.node] for size, count in there.huge_pages.items()}}
        )
        for there in machine.numa_nodes
    ]
    limits = machine.limits.model_copy(update={"huge_pages": free})
    return machine.model_copy(update={"limits": limits, "numa_nodes": nodes})


def _of_size(pages: Pages, size: HugePageSize) -> int:
    return sum(count for (of_size, _), count in pages.items() if of_size == size)
