"""PyTorch's own allocations inside a piece of a layout, through torch.cuda.MemPool.

The blocks come from native code (cpp/core/memory_pool.hpp), which PyTorch calls by name. PyTorch keeps freed tensors'
blocks in its cache, and frees them with the pool or when its cache is emptied; until then they hold leases.
"""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Literal, get_args

from hipplan import _core
from hipplan.layout.holding import Holding
from hipplan.machines.family import family_of
from hipplan.units import format_size

log = logging.getLogger("hipplan")

Threads = Literal["this", "all"]
"""Whose allocations come from a pool."""


class TorchPool:
    """A piece of a layout on one device, in which PyTorch allocates. Raises ValueError if it is not possible."""

    def __init__(self, holding: Holding, name: str) -> None:
        self._holding = holding
        self._name = name
        piece, state = holding.piece(name), holding.state
        resource, devices = piece.resource, state.program.devices
        if resource.kind not in ("region", "tensor", "mapping", "device"):
            raise ValueError(
                f"'{name}' has the kind {resource.kind}; a pool needs a region, a tensor or a device buffer"
            )
        if len(resource.held_by) > 1:
            raise ValueError(f"'{name}' is on several devices; a pool needs memory on one device")
        if resource.kind != "device" and dict(resource.access).get(resource.device) != "rw":
            hint = "give it access rw in the plan, and attached: rw where a holder keeps the memory"
            raise ValueError(f"{resource.device} may not write '{name}': {hint}")
        self.device = devices[resource.device]
        """Its ordinal, HIP's and PyTorch's."""
        self.native = _core.MemoryPool(state.runtime, name, self.device, piece.address, resource.size, holding.leases)
        weakref.finalize(holding, self.native.close)  # there are few slots, and a layout may be dropped unclosed
        self._place = self._placed()
        self._family = family_of(state.runtime.path)
        self._torch_pool: Any = None
        self._allocator: Any = None

    def _placed(self) -> tuple[int | None, int, int]:
        piece = self._holding.piece(self._name)
        return piece.address, piece.resource.size, self._holding.leases.age

    def is_outdated(self) -> bool:
        """Whether a change in place requires a new pool and this one has no tensors left; then it is closed."""
        if self._place == self._placed():
            return False
        self.trim()
        if self.native.blocks:
            return False
        self.close()
        return True

    @contextmanager
    def used(self, threads: Threads) -> Iterator[Any]:
        """While entered, what this thread or all threads allocate on the device comes from here."""
        if threads not in get_args(Threads):
            raise ValueError(f"threads is 'this' or 'all', not {threads!r}")
        torch = self._torch()
        if self._allocator is None:
            slot = self.native.slot
            functions = (f"hipplan_pool_malloc_{slot}", f"hipplan_pool_free_{slot}")
            self._allocator = torch.cuda.memory.CUDAPluggableAllocator(_core.__file__, *functions)
            _allocators.append(self._allocator)
        if self._torch_pool is None:
            self._torch_pool = torch.cuda.MemPool(self._allocator.allocator())
        before = self.native.used
        entered = torch.cuda.use_mem_pool if threads == "this" else _used_by_all_threads
        with torch.cuda.device(self.device), entered(self._torch_pool):
            yield self._torch_pool
        self._report(self.native.used - before, warns=threads == "all")

    def _report(self, taken: int, *, warns: bool) -> None:
        """Log how many bytes PyTorch has newly taken: blocks that it reuses from its own cache are not among them."""
        if taken or not warns:
            log.info("PyTorch took %s of '%s'", format_size(taken), self._name)
        else:
            why = "what was made there lies elsewhere, or in blocks that PyTorch had kept"
            log.warning("PyTorch took no memory of '%s': %s", self._name, why)

    def trim(self) -> None:
        """Makes PyTorch free the blocks without tensors."""
        self._torch_pool = None
        if self.native.blocks:
            self._torch().cuda.empty_cache()

    def renew(self) -> None:
        """Allocates blocks again after its memory slept and is restored."""
        with contextlib.suppress(KeyError, BufferError):  # it was removed, or still sleeps
            if self._placed()[:2] == self._place[:2]:
                self._place = self._placed()
                self.native.renew()

    def close(self) -> None:
        """Stop allocating blocks."""
        self._torch_pool = None
        self.native.close()

    def _torch(self) -> Any:
        try:
            torch = import_module("torch")
        except ImportError:
            raise RuntimeError("torch_pool needs PyTorch, which is not installed") from None
        torch_version = {"cuda": torch.version.cuda, "amd": torch.version.hip}.get(self._family)
        if torch_version is None:
            raise RuntimeError(f"this PyTorch cannot allocate in memory of the runtime '{self._family}'")
        return torch


@contextmanager
def _used_by_all_threads(torch_pool: Any) -> Iterator[None]:
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
