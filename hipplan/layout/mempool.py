"""The torch.cuda.MemPools over two exported C functions, and who uses them.

PyTorch lets one thread at a time allocate in a MemPool, and a graph that is captured counts as one. So each that enters
gets a MemPool of its own; all of them take blocks from the same native pool.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from typing import Any, Literal, get_args

from hipplan import _core
from hipplan.machines.family import Family
from hipplan.units import format_size

log = logging.getLogger("hipplan")

Threads = Literal["this", "all"]
"""Whose allocations come from a pool."""


class MemPool:
    """What PyTorch has of a pool: its allocator, and its torch.cuda.MemPools."""

    def __init__(self, name: str, family: Family, device: int, functions: tuple[str, str]) -> None:
        self._name = name
        self._family = family
        self.device = device
        """Its ordinal, HIP's and PyTorch's."""
        self._functions = functions
        self._idle: list[Any] = []
        """The MemPools in which no thread allocates now; captured graphs may use their memory."""
        self._choosing = threading.Lock()
        self._allocator: Any = None

    @property
    def used_bytes(self) -> int:
        """Bytes that PyTorch has."""
        raise NotImplementedError

    def entering(self) -> AbstractContextManager[None]:
        """Entered while PyTorch allocates here. Raises where it may not."""
        return nullcontext()

    def why_full(self) -> str:
        """Why it had no room, if it had none while PyTorch was allocating here."""
        return f"it has {format_size(self.used_bytes)} in use"

    @contextmanager
    def used(self, threads: Threads) -> Iterator[Any]:
        """While entered, what this thread or all threads allocate on the device comes from here."""
        if threads not in get_args(Threads):
            raise ValueError(f"threads is 'this' or 'all', not {threads!r}")
        torch = self._torch()
        with self.entering():
            if self._allocator is None:
                self._allocator = torch.cuda.memory.CUDAPluggableAllocator(_core.__file__, *self._functions)
                _allocators.append(self._allocator)
            before = self.used_bytes
            entered = torch.cuda.use_mem_pool if threads == "this" else used_by_all_threads
            with torch.cuda.device(self.device), self._torch_pool(torch) as torch_pool, entered(torch_pool):
                try:
                    yield torch_pool
                except torch.cuda.OutOfMemoryError as error:
                    if why := self.why_full():
                        error.args = (f"{error} hipplan: no room in the pool '{self._name}': {why}",)
                    raise
            self._report(self.used_bytes - before, warns=threads == "all")

    def _report(self, taken: int, *, warns: bool) -> None:
        """Log how many bytes PyTorch has newly taken: blocks that it reuses from its own cache are not among them."""
        if taken or not warns:
            log.info("PyTorch took %s of '%s'", format_size(taken), self._name)
        else:
            why = "what was made there lies elsewhere, or in blocks that PyTorch had kept"
            log.warning("PyTorch took no memory of '%s': %s", self._name, why)

    @contextmanager
    def _torch_pool(self, torch: Any) -> Iterator[Any]:
        """A MemPool for whoever enters: an idle one, but for those of graphs. A graph writes to the blocks of its
        MemPool at each replay, so no other tensors may get them."""
        with self._choosing:
            free = [number for number, pool in enumerate(self._idle) if not _is_in_graph(pool)]
            torch_pool = self._idle.pop(free[0]) if free else None
        if torch_pool is None:
            torch_pool = torch.cuda.MemPool(self._allocator.allocator())
        try:
            yield torch_pool
        finally:
            self._idle.append(torch_pool)

    def drop_torch_pools(self) -> None:
        """Drops the MemPools, but for those of captured graphs: PyTorch ends the process if one of these goes."""
        with self._choosing:
            dropped = [pool for pool in self._idle if not _is_in_graph(pool)]
            self._idle = [pool for pool in self._idle if pool not in dropped]
        dropped.clear()  # which frees blocks, with the lock released

    def empty_cache(self) -> None:
        """Makes PyTorch free the blocks without tensors. The caller holds no lock: PyTorch calls the pool's functions,
        and may wait for another thread that does."""
        self.drop_torch_pools()
        if self._allocator is not None:
            self._torch().cuda.empty_cache()

    def _torch(self) -> Any:
        try:
            torch = import_module("torch")
        except ImportError:
            raise RuntimeError("torch_pool needs PyTorch, which is not installed") from None
        torch_version = {"cuda": torch.version.cuda, "amd": torch.version.hip}.get(self._family)
        if torch_version is None:
            raise RuntimeError(f"this PyTorch cannot allocate in memory of the runtime '{self._family}'")
        return torch


def _is_in_graph(torch_pool: Any) -> bool:
    return bool(torch_pool.use_count() > 1)


@contextmanager
def used_by_all_threads(torch_pool: Any) -> Iterator[None]:
    """torch.cuda.use_mem_pool() for all threads. PyTorch has no public function for it: this is what its graphs use.

    Raises RuntimeError where this PyTorch has no such function.
    """
    torch = import_module("torch")
    private = torch._C
    begin = getattr(private, "_cuda_beginAllocateToPool", None)
    end = getattr(private, "_cuda_endAllocateToPool", None)
    if begin is None or end is None:
        raise RuntimeError(
            f"threads='all' needs another PyTorch: {torch.__version__} can only use a pool in one thread"
        )
    device = torch.cuda.current_device()
    begin(device, torch_pool.id)
    try:
        yield
    finally:
        end(device, torch_pool.id)
        private._cuda_releasePool(device, torch_pool.id)  # begin() counts as a user, and end() does not take that back


_allocators: list[Any] = []
"""Kept forever: PyTorch frees blocks through them whenever a tensor dies, and does not own them."""
