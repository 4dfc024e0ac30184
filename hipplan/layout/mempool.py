"""The torch.cuda.MemPools over two exported C functions, and who uses them.

PyTorch lets one thread at a time allocate in a MemPool, and a graph that is captured counts as one. So each that enters
gets a MemPool of its own; all of them take blocks from the same native pool. Of two MemPools that a thread is in,
PyTorch allocates in the one that was entered first: so a block inside another one leaves that for as long (`outside`).
PyTorch ends the process if a MemPool goes while any thread is in one: so that is put off (`drop`).
"""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
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
        self._of_graphs: dict[object, Any] = {}
        """The MemPools for captures, by what was passed as the pool to share."""
        self._choosing = threading.Lock()
        self._allocator: Any = None
        weakref.finalize(self, _leave, self._idle, self._of_graphs)

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
        entered = torch.cuda.use_mem_pool if threads == "this" else used_by_all_threads
        with self.entering(), torch.cuda.device(self.device), self._torch_pool(torch) as torch_pool:
            before = self.used_bytes
            with inside(partial(entered, torch_pool, self.device)), self._explained(torch):
                yield torch_pool
            self._report(self.used_bytes - before, warns=threads == "all")

    @contextmanager
    def captured(self, graph: Any, pool: Any = None, **how: Any) -> Iterator[None]:
        """torch.cuda.graph() with the graph's memory from here. pool: graphs with an equal one share their memory."""
        torch = self._torch()
        with self.entering(), torch.cuda.device(self.device), outside():
            shared = self._graph_pool(torch, object() if pool is None else pool)
            with _counted(), torch.cuda.graph(graph, pool=shared.id, **how), self._explained(torch):
                yield

    @contextmanager
    def _explained(self, torch: Any) -> Iterator[None]:
        """Adds the reason to PyTorch's error where there is no room."""
        try:
            yield
        except torch.cuda.OutOfMemoryError as error:
            if why := self.why_full():
                error.args = (f"{error} hipplan: no room in the pool '{self._name}': {why}",)
            raise

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
            torch_pool = self._new_torch_pool(torch)
        try:
            yield torch_pool
        finally:
            self._idle.append(torch_pool)

    def _graph_pool(self, torch: Any, shared: object) -> Any:
        """The MemPool of graphs that share memory. shared: what names it; its own id does, too."""
        with self._choosing:
            known = self._of_graphs.get(shared)
            of_id = (torch_pool for torch_pool in self._of_graphs.values() if torch_pool.id == shared)
            if known is None and (known := next(of_id, None)) is None:
                known = self._of_graphs[shared] = self._new_torch_pool(torch)
        return known

    def _new_torch_pool(self, torch: Any) -> Any:
        if self._allocator is None:
            self._allocator = torch.cuda.memory.CUDAPluggableAllocator(_core.__file__, *self._functions)
            _allocators.append(self._allocator)
        return torch.cuda.MemPool(self._allocator.allocator())

    def drop_torch_pools(self) -> None:
        """Drops the MemPools, but for those of captured graphs: PyTorch ends the process if one of these goes."""
        with self._choosing:
            dropped = [pool for pool in self._idle if not _is_in_graph(pool)]
            self._idle[:] = [pool for pool in self._idle if pool not in dropped]
            unused = [name for name, pool in self._of_graphs.items() if not _is_in_graph(pool)]
            dropped += [self._of_graphs.pop(name) for name in unused]
        drop(dropped)  # which frees blocks, with the lock released

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


_gate = threading.RLock()
"""Taken for what follows, and to enter a pool; PyTorch's own lock comes after it."""
_entered = 0
"""How many uses of a pool there are now, in all threads."""
_unneeded: list[Any] = []
"""MemPools that go once there are none, and no graph uses them."""


def drop(torch_pools: list[Any]) -> None:
    """Empties a list of MemPools that are not needed any more: they go now, or later."""
    with _gate:
        _unneeded.extend(torch_pools)
        torch_pools.clear()
        _drop_unneeded()


def _drop_unneeded() -> None:
    if not _entered:
        _unneeded[:] = [torch_pool for torch_pool in _unneeded if _is_in_graph(torch_pool)]


def _leave(idle: list[Any], of_graphs: dict[object, Any]) -> None:
    """Drops the MemPools of a pool that goes."""
    left = [*idle, *of_graphs.values()]
    idle.clear()
    of_graphs.clear()
    drop(left)


@atexit.register
def _keep_for_ever() -> None:
    """What a graph uses at the end of the process never goes."""
    if not _unneeded:
        return
    import ctypes  # takes milliseconds, which the first apply of a process need not spend

    for torch_pool in _unneeded:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(torch_pool))


@contextmanager
def _counted() -> Iterator[None]:
    global _entered
    with _gate:
        _entered += 1
    try:
        yield
    finally:
        with _gate:
            _entered -= 1
            _drop_unneeded()


class _Use:
    """What a thread has entered, and can leave for a while."""

    def __init__(self, enter: Callable[[], AbstractContextManager[Any]]) -> None:
        self._enter = enter
        self._entered = ExitStack()

    def begin(self) -> None:
        self._entered.enter_context(_counted())
        self._entered.enter_context(self._enter())

    def end(self) -> None:
        self._entered.close()


class _Uses(threading.local):
    """The use that counts for a thread; None: it allocates in none of our pools."""

    current: _Use | None = None


_uses = _Uses()


@contextmanager
def outside() -> Iterator[None]:
    """While entered, this thread is in none of the pools that it had entered here."""
    left, _uses.current = _uses.current, None
    if left is not None:
        left.end()
    try:
        yield
    finally:
        _uses.current = left
        if left is not None:
            left.begin()


@contextmanager
def inside(enter: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
    """Enters a pool in place of the one that this thread is in."""
    with outside():
        use = _Use(enter)
        use.begin()
        _uses.current = use
        try:
            yield
        finally:
            use.end()


@contextmanager
def in_own_memory() -> Iterator[None]:
    """While entered, this thread allocates in a MemPool of PyTorch's own memory, which goes at the end."""
    torch = import_module("torch")
    with outside():
        own = [torch.cuda.MemPool()]
        try:
            with inside(lambda: torch.cuda.use_mem_pool(own[0])):
                yield
        finally:
            drop(own)


@contextmanager
def used_by_all_threads(torch_pool: Any, device: int) -> Iterator[None]:
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
    begin(device, torch_pool.id)
    try:
        yield
    finally:
        end(device, torch_pool.id)
        private._cuda_releasePool(device, torch_pool.id)  # begin() counts as a user, and end() does not take that back


_allocators: list[Any] = []
"""Kept forever: PyTorch frees blocks through them whenever a tensor dies, and does not own them."""
