"""A live layout: addresses and sizes by name, until it is closed."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from typing_extensions import Self

from hipplan import _core
from hipplan.errors import LayoutInUse, LeakError, suggest_or_list
from hipplan.layout import open_layouts
from hipplan.layout.changing import ChangesInPlace
from hipplan.layout.dma_buf import DmaBuf, export_dma_buf
from hipplan.layout.holding import Holding
from hipplan.layout.moving import MovesBytes
from hipplan.layout.pools_asleep import pools_emptied
from hipplan.layout.sharing import export
from hipplan.layout.tensors import Convert, tensors_of
from hipplan.layout.undo import NOTHING, Undone, free_waiting, patience
from hipplan.layout.verify import Checks, verify
from hipplan.layout.views import Piece
from hipplan.layout.watching import OnName, Watch
from hipplan.notebooks import InNotebooks
from hipplan.plain import callback, flag, seconds, shown
from hipplan.program.checks import Check
from hipplan.program.lookup import object_count, resource_of
from hipplan.program.patterns import required
from hipplan.program.resources import RANGES

if TYPE_CHECKING:
    from hipplan.pictures.picture import Picture

log = logging.getLogger("hipplan")


class Layout(ChangesInPlace, MovesBytes, InNotebooks):
    """What apply() returns. Use it as a context manager, or call close().

    layout["scratch"] is a Piece: its address and size, and views of its bytes for NumPy, PyTorch and CuPy. close()
    frees all memory. A layout that is dropped without close() is freed when its last view is deleted, or when the
    interpreter exits. It cannot be copied or pickled. A forked child must not use or close its parent's layout: closing
    it there makes no driver call.
    """

    def __init__(self, holding: Holding, notice: str = "", retries: int = 0) -> None:
        super().__init__(holding)
        self.notice = notice
        """What to know about the runtime; empty if nothing."""
        self.retries = retries
        """Calls of apply repeated because the driver returned NotReady."""
        open_layouts.add(self)

    @property
    def checks(self) -> Sequence[Check]:
        """What was read back after the last step; after a change in place, of the changed objects."""
        return self._holding.state.checks

    def __getitem__(self, name: str) -> Piece:
        """Returns a new Piece. KeyError suggests a similar name; BufferError: the layout is closed, or in a fork."""
        return self._holding.piece(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and resource_of(self.program, name) is not None

    def __repr__(self) -> str:
        return f"<hipplan.Layout '{self.program.name}': {'closed' if self.closed else f'{len(self)} objects'}>"

    def _ipython_key_completions_(self) -> list[str]:
        """The names that IPython and notebooks offer after layout["."""
        return [] if self.closed else [name for name in self if "#" not in name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.program.by_name)

    def __len__(self) -> int:
        return object_count(self.program)

    @property
    def runtime(self) -> _core.Runtime:
        return self._holding.state.runtime

    @property
    def closed(self) -> bool:
        return self._holding.closed

    @property
    def leases(self) -> int:
        """Arrays, tensors and buffers made from this layout that still live, and transfers that are under way."""
        self._holding.under_way.forget_done()
        return len(self._holding.leases)

    def verify(self) -> Checks:
        """Reads everything back from the driver; a check that does not match has `ok` False.

        Raises HipError if a query fails, ValueError if the layout is closed.
        """
        with self._holding.lock.taken():
            self._holding.require_open()
            return verify(self._holding.state)

    def drift(self) -> list[Check]:
        """Returns what differs from the plan now, because other code changed it. Raises as verify() does."""
        return self.verify().mismatches()

    def draw(self) -> Picture:
        """A picture of the layout as it is now, with its addresses. A notebook shows it; save() writes it to a file.

        Raises ValueError if the layout is closed.
        """
        from hipplan.pictures.picture import draw

        with self._holding.lock.taken():
            self._holding.require_open()
            state = self._holding.state
            ranges = [resource for resource in state.program.outer if resource.kind in RANGES]
            addresses = {range_.name: at for range_ in ranges if (at := state.address(range_)) is not None}
        return draw(state.program, addresses=addresses)

    def export(self, name: str) -> int:
        """Returns a new file descriptor of an allocation, for another process to bind; the caller closes it.

        The memory exists while any process has the descriptor open or the memory mapped. Raises KeyError, BufferError
        (closed), ValueError (not an own allocation with shareable: posix_fd), HipError.
        Source: hipMemExportToShareableHandle.
        """
        with self._holding.lock.taken():
            return export(self._holding.state, self[name].resource)

    def export_dma_buf(self, name: str) -> DmaBuf:
        """The memory of a region or mapping as one dma-buf, for a network card to register: docs/rdma.md.

        It has to be one piece of memory; on CUDA its plan says `rdma: true`. Raises KeyError, BufferError (closed, or
        it sleeps), ApplyError: it is not one handle (HP420), or the driver refused (HP401): HIP before 7.0.
        Source: hipMemGetHandleForAddressRange.
        """
        with self._holding.lock.taken():
            return export_dma_buf(self._holding.state, self[name])

    def watch(self, name: str, *, on_unmap: OnName | None = None, on_map: OnName | None = None) -> Watch:
        """Calls on_unmap(name) before memory of a name is unmapped, and on_map(name) when it is mapped again.

        sleep, remap, shrink, update and close unmap memory; a network must unregister it before. After a change that
        failed on_map is called too, because the memory is still mapped. An exception of on_unmap stops the change, with
        nothing changed. Neither is called for a layout that is dropped without close(). Raises KeyError; TypeError
        for an object that cannot be called; ValueError once the layout is closed.
        """
        self._holding.require_open()
        required(name, "the name of an object")
        if name not in self:
            raise KeyError(f"the layout has no '{shown(name)}'; {suggest_or_list(name, list(self))}")
        callback(on_unmap, "on_unmap")
        callback(on_map, "on_map")
        if on_unmap is None and on_map is None:
            raise TypeError("watch() needs on_unmap, on_map or both")
        return self._holding.watches.add(name, on_unmap, on_map)

    def tensors(self, name: str, *, convert: Convert | None = None) -> dict[str, Any]:
        """All tensors of a region, by their names in it; or those whose names match a pattern ("*.weight"), by their
        whole names.

        convert: makes each one of a Piece; default: torch.from_dlpack, without a copy. The result is what
        `module.load_state_dict(tensors, assign=True)` takes. Raises KeyError: no such tensors; BufferError as
        layout[name] does; RuntimeError without PyTorch.
        """
        return tensors_of(self._holding, name, convert)

    def close(self, *, force: bool = False, wait: float = 0.0) -> Undone:
        """Waits for the devices and for transfers, then releases everything, latest first. A second call does nothing.

        Raises LayoutInUse (HP409), with nothing changed, while arrays or tensors made from this layout exist; with
        force too in a callback of what copies its bytes.
        force: closes anyway. Mapped memory is unmapped, so using an old pointer faults; its addresses, any buffer with
        a view, and the streams are kept until the views are deleted (Undone.kept).
        wait: for a layout whose ranks share memory, how many seconds to wait for the other ranks of the node to close
        theirs, after this one is closed; Undone.ranks lists those that have not. Default: waits for no other rank.
        Raises LeakError, after everything else was released, if an object could not be released.
        """
        try:
            return self._close_once(force, wait)
        except KeyboardInterrupt:
            if not self.closed:  # it came before anything was freed; a second one ends what is waited for
                try:
                    self._close_once(force, wait)
                except Exception as error:
                    log.error("%s", error)
            raise

    def _close_once(self, force: bool, wait: float = 0.0) -> Undone:
        """close() for who answers interrupts: one may end it before anything is freed."""
        holding, force, wait = self._holding, flag(force, "force"), seconds(wait, "wait", zero=True)
        if holding.is_forked:  # before the lock, which a thread of the parent may hold
            return NOTHING
        if not self.closed:
            _core.expect_idle_wait()  # early: waking the thread takes longer than the code before the wait
        for pool in self._torch_pools.values():
            pool.trim()
        holding.under_way.wait(patience(), stop=force)
        with pools_emptied(holding, force), holding.lock.taken():
            if self.closed:
                return NOTHING
            try:
                holding.watches.before(holding.state)
                undone = holding.close(force)
            except BaseException:
                if not self.closed:
                    holding.watches.after(holding.state, is_failing=True)
                raise
        open_layouts.discard(self)
        for pool in self._torch_pools.values():
            pool.close()
        if holding.record is not None:
            holding.record.end()
        if undone.kept:
            _core.add_waiting(holding.native.retired)
        still_open = holding.ranks.notify_closed(wait) if holding.ranks is not None else ()
        if holding.holder is not None:
            holding.holder.detach()
        interrupt = free_waiting()
        if still_open or interrupt is not None:
            undone = replace(undone, ranks=still_open, interrupt=interrupt or undone.interrupt)
        undone.raise_failures()
        return undone

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "a layout cannot be copied or pickled: its memory belongs to this process. Another process applies a plan "
            "of its own, or maps this memory: docs/sharing.md"
        )

    def __enter__(self) -> Self:
        """Raises ValueError: the layout is closed."""
        self._holding.require_open()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.close()
        except (LeakError, LayoutInUse) as unclosed:
            if error is None:
                raise
            log.error("%s", unclosed)  # the body's own exception goes on unchanged
        except BaseException:
            if not self.closed:  # an interrupt came before close() could begin
                self.close()
            raise
