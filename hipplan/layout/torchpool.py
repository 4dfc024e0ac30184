"""PyTorch's own allocations inside a piece of a layout, through torch.cuda.MemPool.

The blocks come from native code (cpp/core/memory_pool.hpp), which PyTorch calls by name. PyTorch keeps freed tensors'
blocks in its cache, and frees them with the pool or when its cache is emptied; until then they have leases.
"""

from __future__ import annotations

import contextlib
import weakref

from hipplan import _core
from hipplan.kinds.lives import lies
from hipplan.layout.holding import Holding
from hipplan.layout.mempool import MemPool
from hipplan.machines.family import family_of


class TorchPool(MemPool):
    """A piece of a layout on one device, in which PyTorch allocates. Raises ValueError if it is not possible."""

    def __init__(self, holding: Holding, name: str) -> None:
        self._holding = holding
        self._name = name
        piece, state = holding.piece(name), holding.state
        resource, devices = piece.resource, state.program.devices
        is_buffer = lies(resource.kind) == "device"
        if resource.kind not in ("region", "tensor", "mapping") and not is_buffer:
            raise ValueError(
                f"'{name}' has the kind {resource.kind}; a pool needs a region, a tensor or a device buffer"
            )
        if len(resource.bytes_by_device) > 1:
            raise ValueError(f"'{name}' is on several devices; a pool needs memory on one device")
        if not is_buffer and dict(resource.access).get(resource.device) != "rw":
            hint = "give it access rw in the plan, and attached: rw where a holder keeps the memory"
            raise ValueError(f"{resource.device} may not write '{name}': {hint}")
        device = devices[resource.device]
        self.native = _core.MemoryPool(state.runtime, name, device, piece.address, resource.size, holding.leases)
        functions = (f"hipplan_pool_malloc_{self.native.slot}", f"hipplan_pool_free_{self.native.slot}")
        super().__init__(name, family_of(state.runtime.path), device, functions)
        weakref.finalize(holding, self.native.close)  # there are few slots, and a layout may be dropped unclosed
        self._place = self._placed()

    @property
    def used_bytes(self) -> int:
        return self.native.used

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

    def trim(self) -> None:
        """Makes PyTorch free the blocks without tensors."""
        if self.native.blocks:
            self.empty_cache()
        self.drop_torch_pools()

    def renew(self) -> None:
        """Allocates blocks again after its memory slept and is restored."""
        with contextlib.suppress(KeyError, BufferError):  # it was removed, or still sleeps
            if self._placed()[:2] == self._place[:2]:
                self._place = self._placed()
                self.native.renew()

    def close(self) -> None:
        """Stop allocating blocks."""
        self.drop_torch_pools()
        self.native.close()
