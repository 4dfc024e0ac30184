"""Memory of a layout as one dma-buf, for a network card to register."""

from __future__ import annotations

import os

from typing_extensions import Self

from hipplan import _core
from hipplan.errors import driver_failure
from hipplan.layout.state import State
from hipplan.layout.views import Piece
from hipplan.machines.family import family_of
from hipplan.plain import counted
from hipplan.program.lookup import mappings_within
from hipplan.program.refusals import refuse
from hipplan.program.resources import Resource


class DmaBuf:
    """A descriptor of memory: for ibv_reg_dmabuf_mr, or any other importer of dma-bufs. Close it, or use it in `with`.

    It has a lease, as a view does: until it is closed the memory stays where it is.
    """

    def __init__(self, descriptor: int, piece: Piece, lease: _core.Lease) -> None:
        self._descriptor = descriptor
        self._lease: _core.Lease | None = lease
        self.name = piece.name
        self.address: int = piece.address
        """Where the memory begins; the first byte of the dma-buf."""
        self.size = piece.size
        """Bytes."""

    def fileno(self) -> int:
        """The descriptor, which stays this object's. Raises ValueError once it is closed."""
        if self._descriptor < 0:
            raise ValueError(f"the dma-buf of '{self.name}' is closed")
        return self._descriptor

    def close(self) -> None:
        """Closes the descriptor; a card that has registered the memory keeps it until it unregisters."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
        self._lease = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def export_dma_buf(state: State, piece: Piece) -> DmaBuf:
    """layout.export_dma_buf()."""
    resource = piece.resource
    _require_one(state, resource)
    lease = _core.Lease(piece)
    try:
        descriptor = state.runtime.dma_buf_of(piece.address, resource.size)
    except _core.HipError as error:
        del lease  # else the error's traceback keeps the layout in use
        raise driver_failure(error, resource.name, "nothing was changed") from error
    os.set_inheritable(descriptor, False)
    return DmaBuf(descriptor, piece, lease)


def _require_one(state: State, resource: Resource) -> None:
    """Raises ApplyError (HP420) unless it is a single piece of a GPU's memory, created for RDMA."""
    name = resource.name
    if resource.kind not in ("region", "mapping"):
        hint = "name a region or a mapping"
        raise refuse(f"there is no dma-buf of '{name}'", why=f"it is of the kind {resource.kind}", hint=hint)
    pieces = [resource] if resource.kind == "mapping" else mappings_within(state.program, name)
    if len(pieces) > 1:
        why = f"it is {counted(len(pieces), 'piece')} of memory, and a dma-buf is of one"
        hint = f"leave chunk and devices out in the plan, or take each piece: '{pieces[0].name}'"
        raise refuse(f"'{name}' is not one handle", why=why, hint=hint)
    step = state.program.makers.get(pieces[0].memory)
    if step is not None and step.is_on_host:
        raise refuse(f"there is no dma-buf of '{name}'", why="its memory is the host's", hint="register its address")
    if step is not None and step.owns_memory and not step.is_for_network and family_of(state.runtime.path) == "cuda":
        raise refuse(f"there is no dma-buf of '{name}'", why="its memory is not made for it", hint="add rdma: true")
