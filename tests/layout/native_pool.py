"""A growing pool's two functions, called as PyTorch calls them, without PyTorch."""

from __future__ import annotations

import ctypes

from hipplan import _core
from hipplan.layout.growing import GrowingPool
from hipplan.layout.layout import Layout
from hipplan.layout.pools_asleep import pool_of
from tests.conftest import Simulator

EXPORTS = ctypes.CDLL(_core.__file__)
POISON = 0xDD


class Allocator:
    """malloc and free of one pool. With the simulator, a block that is freed is first filled with poison."""

    def __init__(self, layout: Layout, region: str, sim: Simulator | None = None) -> None:
        self.pool: GrowingPool = pool_of(layout._holding, region)
        self.device = self.pool.device
        self._sim = sim
        self._sizes: dict[int, int] = {}
        number = f"{self.pool.native.slot:03x}"
        self._malloc = EXPORTS[f"hipplan_chunks_malloc_{number}"]
        self._malloc.restype = ctypes.c_void_p
        self._free = EXPORTS[f"hipplan_chunks_free_{number}"]

    def malloc(self, size: int, device: int | None = None) -> int | None:
        address: int | None = self._malloc(ctypes.c_ssize_t(size), self.device if device is None else device, None)
        if address is not None:
            self._sizes[address] = size
        return address

    @property
    def blocks(self) -> list[int]:
        """The addresses of those that are not freed."""
        return [*self._sizes]

    def block(self, size: int) -> int:
        """The address of a block that has to be had."""
        address = self.malloc(size)
        assert address is not None, self.pool.native.why_full
        return address

    def free(self, address: int) -> None:
        size = self._sizes.pop(address, 0)
        if self._sim is not None and size and self.pool.native.state == "open":
            self._sim.fill(address, POISON, size)
        self._free(ctypes.c_void_p(address), ctypes.c_ssize_t(0), self.device, None)
