"""A stand-in for PyTorch's allocator: it calls the functions of a pool as torch.cuda does, on simulated memory.

It does what PyTorch 2.11 was seen to do: of the pools that a thread is in it takes the one that was entered first, it
keeps blocks whose tensors died until the pool is gone and the cache is emptied, and it ends the process if a MemPool
goes that a graph uses, or while any thread is in one.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace
from typing import Any

from hipplan.layout.mempool import MemPool as OfHipplan

PLAIN = 0x7000_0000_0000
"""Where memory of PyTorch's own allocator begins; no driver has it."""


class Functions:
    """torch.cuda.memory.CUDAPluggableAllocator."""

    def __init__(self, library: str, malloc: str, free: str) -> None:
        exports = ctypes.CDLL(library)
        self.malloc, self.free = exports[malloc], exports[free]
        self.malloc.restype = ctypes.c_void_p

    def allocator(self) -> Functions:
        return self


@dataclass
class Blocks:
    """What PyTorch has of one MemPool."""

    functions: Functions | None
    users: int = 1
    free: list[tuple[int, int, int]] = field(default_factory=list)
    """Address, size and device of each block without a tensor."""


class OutOfMemoryError(RuntimeError):
    pass


class Torch:
    """The module `torch`, as far as hipplan uses it."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._plain = count(PLAIN, 2**30)
        self._pools: dict[tuple[int, int], Blocks] = {(0, 0): Blocks(None)}
        self._entered: list[tuple[int, int, tuple[int, int]]] = []
        """Thread, device and pool, in the order of their entering."""
        self._device = 0
        self.uint8 = "uint8"
        stand_in = self

        class MemPool:
            def __init__(self, allocator: Functions | None = None) -> None:
                self.id = (0, next(stand_in._numbers))
                stand_in._pools[self.id] = Blocks(allocator)

            def use_count(self) -> int:
                return stand_in._pools[self.id].users

            def __del__(self) -> None:
                assert stand_in._pools[self.id].users == 1 and not stand_in._entered, "PyTorch ends the process"
                stand_in._pools[self.id].users = 0

        self.cuda = SimpleNamespace(
            MemPool=MemPool, use_mem_pool=self._use_mem_pool, graph=self._graph, empty_cache=self._empty_cache,
            current_device=lambda: self._device, device=self._in_device, OutOfMemoryError=OutOfMemoryError,
            memory=SimpleNamespace(CUDAPluggableAllocator=Functions),
        )  # fmt: skip

    def set_device(self, device: int) -> None:
        self._device = device

    @contextmanager
    def _in_device(self, device: int) -> Iterator[None]:
        before, self._device = self._device, device
        yield
        self._device = before

    @contextmanager
    def _use_mem_pool(self, pool: Any, device: int | None = None) -> Iterator[None]:
        entry = (threading.get_ident(), self._device if device is None else device, pool.id)
        assert entry not in self._entered, "already recording to mempool_id"
        self._entered.append(entry)
        self._pools[pool.id].users += 1
        try:
            yield
        finally:
            self._entered.remove(entry)
            self._pools[pool.id].users -= 1

    @contextmanager
    def _graph(self, graph: Any, pool: Any, stream: Any = None, capture_error_mode: str = "global") -> Iterator[None]:
        graph.how = (pool, stream, capture_error_mode)
        graph.torch = self
        self._pools[pool].users += 1  # until graph.reset()
        with self._use_mem_pool(SimpleNamespace(id=pool)):
            yield

    def _empty_cache(self) -> None:
        for blocks in list(self._pools.values()):
            if blocks.users == 0 and blocks.functions is not None:
                while blocks.free:
                    address, size, device = blocks.free.pop()
                    blocks.functions.free(ctypes.c_void_p(address), ctypes.c_ssize_t(size), device, None)

    def empty(self, size: int, device: int | None = None) -> Tensor:
        """A tensor of bytes. Raises OutOfMemoryError."""
        device = self._device if device is None else device
        mine = (pool for thread, where, pool in self._entered if (thread, where) == (threading.get_ident(), device))
        blocks = self._pools[next(mine, (0, 0))]
        for kept in blocks.free:
            if kept[1:] == (size, device):
                blocks.free.remove(kept)
                return Tensor(blocks, kept)
        if blocks.functions is None:
            return Tensor(blocks, (next(self._plain), size, device))
        address = blocks.functions.malloc(ctypes.c_ssize_t(size), device, None)
        if address is None:
            raise OutOfMemoryError("CUDA out of memory.")
        return Tensor(blocks, (address, size, device))


class Graph:
    """torch.cuda.CUDAGraph."""

    how: tuple[Any, ...] = ()
    torch: Torch

    def reset(self) -> None:
        if self.how:
            self.torch._pools[self.how[0]].users -= 1
        self.how = ()

    def __del__(self) -> None:
        self.reset()


class Tensor:
    """Bytes on a device, until it is deleted."""

    is_cuda = True
    dtype = "uint8"

    def __init__(self, blocks: Blocks, block: tuple[int, int, int]) -> None:
        self._blocks, self._block = blocks, block
        self.address, self.nbytes, self.device = block
        self.shape = (self.nbytes,)

    def data_ptr(self) -> int:
        return self.address

    def is_contiguous(self) -> bool:
        return True

    @property
    def is_plain(self) -> bool:
        """Whether it is in PyTorch's own memory."""
        return self.address >= PLAIN and self._blocks.functions is None

    def __del__(self) -> None:
        self._blocks.free.append(self._block)


def put_in_place(patch: Any) -> Torch:
    """From here on hipplan takes this for PyTorch. patch: pytest's monkeypatch."""
    torch = Torch()
    patch.setattr(OfHipplan, "_torch", lambda self: torch)
    patch.setitem(__import__("sys").modules, "torch", torch)
    return torch
