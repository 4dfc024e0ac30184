"""Pools for PyTorch, as methods of a layout."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hipplan.layout.growing import GrowingPool
from hipplan.layout.holding import Holding
from hipplan.layout.mempool import Threads
from hipplan.layout.pools_asleep import of_all, pool_of
from hipplan.layout.torchpool import TorchPool
from hipplan.layout.usage import Usage, regions_of
from hipplan.plain import shown
from hipplan.program.patterns import Names, listed
from hipplan.program.tags import pools_in, tag_of, tagged


class HasPools:
    """What a layout has for PyTorch's own allocations."""

    _holding: Holding

    _torch_pools: dict[str, TorchPool]

    @contextmanager
    def torch_pool(self, name: str, *, threads: Threads = "this") -> Iterator[Any]:
        """While entered, PyTorch allocations on the device come from a region, tensor or device buffer, or from the
        pool with a tag.

        name: of the object, or the tag of a region with `torch:` in the plan; where several devices have the tag, that
        of PyTorch's current device. threads: "this" thread's allocations, or those of "all" threads: so also gradients,
        which backward() makes in a thread of its own, and models that transformers loads with worker threads. With
        "all" a warning is logged if nothing was allocated inside. It yields a torch.cuda.MemPool; if it is full,
        PyTorch raises torch.OutOfMemoryError, with the region's name. Tensors keep the layout open (HP409). Memory that
        a region without `torch:` has grown by is used once all older tensors are deleted. Raises ValueError for memory
        that is not on one device, RuntimeError without a PyTorch for the runtime's GPUs, or with one that cannot do it
        for all threads; for a pool with a tag ApplyError (HP441): it is asleep.
        """
        if regions := tagged(self._holding.state.program, name):
            with self._pool_here(name, regions).used(threads) as torch_pool:
                yield torch_pool
            return
        pool = self._torch_pools.get(name)
        if pool is None or pool.is_outdated():
            pool = self._torch_pools[name] = TorchPool(self._holding, name)
        with pool.used(threads) as torch_pool:
            yield torch_pool

    @contextmanager
    def torch_graph(self, name: str, graph: Any, *, pool: Any = None, **how: Any) -> Iterator[None]:
        """torch.cuda.graph(graph, pool, **how), but the graph's memory is in the pool with a tag, and sleeps with it.

        name: as in torch_pool(), for a region with `torch:`. pool: of torch.cuda.graph_pool_handle(), or of another
        graph: graphs with an equal one share their memory. The block may be inside torch_pool(), which it leaves for as
        long. Raises KeyError: there is no such pool; RuntimeError as torch_pool(); ApplyError (HP441): it is asleep.
        """
        if not (regions := tagged(self._holding.state.program, name)):
            raise self._no_pool(name)
        with self._pool_here(name, regions).captured(graph, pool, **how):
            yield

    def host_copy(self, address: int, size: int) -> memoryview | None:
        """The copy in host memory of `size` bytes at an address: of a tensor in a pool with a tag that sleeps to
        "host", or that woke with retain=True. None: there is none, or the tensor's memory was taken later.

        The view keeps the copy: a later wake() does not free it. Writing to it changes what wake() restores.
        """
        self._holding.require_open()
        with self._holding.lock.taken():
            copies = (pool.host_copy(address, size) for pool in self._holding.pools)
            return next((copy for copy in copies if copy is not None), None)

    def usage(self) -> Usage:
        """Reserved, mapped and used bytes of the pools with a tag, and where the chunks of regions on the host are:
        print() shows tables, as_dict() is for JSON."""
        program = self._holding.state.program
        usage = Usage(pool_of(self._holding, region).usage for region in pools_in(program))
        usage.regions, usage.retained = regions_of(program), self._holding.native.spare_bytes
        return usage

    def trim(self, names: Names | None = None) -> int:
        """Frees the memory of pools with a tag that no tensor needs; returns how many bytes.

        names: regions or tags; default: all pools. It empties PyTorch's cache, waits for the device, and frees chunks
        without tensors: then a pool has at most one chunk more than its tensors fill, where they lie close together.
        Tensors stay. Raises ApplyError (HP401), LeakError: a chunk could not be released.
        """
        self._holding.require_open()
        pools = self._pools_of(names)
        before = sum(pool.native.usage.mapped for pool in pools)
        of_all(pools, GrowingPool.trim).raise_failures()
        return before - sum(pool.native.usage.mapped for pool in pools)

    def _pools_of(self, names: Names | None) -> list[GrowingPool]:
        """Raises KeyError: no pool has this name or tag."""
        program = self._holding.state.program
        if names is None:
            return [pool_of(self._holding, region) for region in pools_in(program)]
        regions: dict[str, None] = {}
        for name in listed(names):
            if not (meant := tagged(program, name)):
                raise self._no_pool(name)
            regions |= dict.fromkeys(meant)
        return [pool_of(self._holding, region) for region in regions]

    def _no_pool(self, name: str) -> KeyError:
        program = self._holding.state.program
        known = ", ".join(sorted({tag_of(program, region) for region in pools_in(program)})) or "none"
        return KeyError(f"no pool has the tag '{shown(name)}'; tags: {known}")

    def _pool_here(self, name: str, regions: tuple[str, ...]) -> GrowingPool:
        """The pool of a name; of several with its tag, that of PyTorch's current device."""
        pools = [pool_of(self._holding, region) for region in regions]
        if len(pools) == 1:
            return pools[0]
        current = pools[0]._torch().cuda.current_device()
        here = next((pool for pool in pools if pool.device == current), None)
        if here is None:
            devices = ", ".join(str(pool.device) for pool in pools)
            raise ValueError(f"the tag '{name}' has pools on the devices {devices}, and device {current} is current")
        return here
