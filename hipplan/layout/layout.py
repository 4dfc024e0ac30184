"""A live layout: addresses and sizes by name, until it is closed."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from typing_extensions import Self

from hipplan import _core
from hipplan.errors import LayoutInUse, LeakError, suggest_or_list
from hipplan.layout import open_layouts, remapping, sleeping, update
from hipplan.layout.checks import Check
from hipplan.layout.dma_buf import DmaBuf, export_dma_buf
from hipplan.layout.holding import Holding
from hipplan.layout.moving import MovesBytes
from hipplan.layout.options import OnBytes, OnStep, Options
from hipplan.layout.sharing import export
from hipplan.layout.sleeping import Names, OnNames
from hipplan.layout.tensors import Convert, tensors_of
from hipplan.layout.torchpool import Threads, TorchPool
from hipplan.layout.undo import NOTHING, Undone, free_waiting, patience
from hipplan.layout.verify import Checks, verify
from hipplan.layout.views import Piece
from hipplan.layout.watching import OnName, Watch
from hipplan.notebooks import InNotebooks
from hipplan.plain import called, seconds
from hipplan.program.borders import Part
from hipplan.program.difference import Difference

if TYPE_CHECKING:
    from hipplan.language.loader import LoadedPlan, PlanSource
    from hipplan.pictures.picture import Picture

log = logging.getLogger("hipplan")


class Layout(MovesBytes, InNotebooks):
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
        self._torch_pools: dict[str, TorchPool] = {}
        open_layouts.add(self)

    @property
    def checks(self) -> Sequence[Check]:
        """What was read back after the last step; after a change in place, of the changed objects."""
        return self._holding.state.checks

    def __getitem__(self, name: str) -> Piece:
        """Returns a new Piece. KeyError suggests a similar name; BufferError: the layout is closed, or in a fork."""
        return self._holding.piece(name)

    def __contains__(self, name: object) -> bool:
        return name in self._holding.state.resources

    def __repr__(self) -> str:
        return f"<hipplan.Layout '{self.program.name}': {'closed' if self.closed else f'{len(self)} objects'}>"

    def _ipython_key_completions_(self) -> list[str]:
        """The names that IPython and notebooks offer after layout["."""
        return [] if self.closed else [name for name in self if "#" not in name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._holding.state.resources)

    def __len__(self) -> int:
        return len(self._holding.state.resources)

    @property
    def runtime(self) -> _core.Runtime:
        return self._holding.state.runtime

    @property
    def closed(self) -> bool:
        return self._holding.closed

    @property
    def leases(self) -> int:
        """Arrays, tensors and buffers made from this layout that still live, and transfers that are under way."""
        self._holding.under_way.settle()
        return len(self._holding.leases)

    def verify(self) -> Checks:
        """Reads everything back from the driver; a check that does not match has `ok` False.

        Raises HipError if a query fails, ValueError if the layout is closed.
        """
        with self._holding.lock:
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

        with self._holding.lock:
            self._holding.require_open()
            state = self._holding.state
            ranges = [resource for resource in state.program.resources if resource.kind in ("region", "reservation")]
            addresses = {range_.name: at for range_ in ranges if (at := state.address(range_)) is not None}
        return draw(state.program, addresses=addresses)

    def update(
        self,
        plan: LoadedPlan | PlanSource,
        *,
        lose: Names = (),
        vars: Mapping[str, Any] | None = None,  # noqa: A002
        bind: Mapping[str, Any] | None = None,
        on_step: OnStep | None = None,
        verify: bool = True,
    ) -> Difference:
        """Changes this layout in place to match a plan; print() the returned difference to see what was changed.

        A file that `hipplan preview NEW --from OLD -o change.json` wrote is a plan, too, with the change to it that was
        reviewed and its `lose`: that very change is made, or none (HP425).

        It waits for a change or a copy that another thread has begun, as remap, sleep and wake do.

        Objects that are equal in both keep their address, handle and bytes. New objects are made and read back before
        anything is removed; until then a failure leaves the layout unchanged. lose: names of objects that may lose
        their bytes, address or a device's right; * in a name stands for any text, so "*" allows all. In a group all
        ranks pass the same. plan, vars, bind, on_step, verify: as in hipplan.apply; bind needs only new objects.

        Raises, with nothing changed, PlanError, MachineError (this machine cannot hold old and new memory together),
        RuntimeUnavailable (it cannot describe this machine), ApplyError (HP423: `lose` does not name all that would be
        lost; or rolled back), LayoutInUse (HP409) while views of removed memory exist; LeakError if the layout was
        changed, but an object could not be released; RuntimeError in an on_bytes.
        """
        from hipplan.layout.wanted import Wanted

        wanted = Wanted(plan, vars, sleeping.listed(lose), bind)
        self._holding.require_open()
        with self._holding.turn.taken():
            options = Options(bind=bind, on_step=on_step, check=verify)
            return update.change(self._holding, "update", wanted.change, lose=wanted.lose, options=options)

    def grow(self, name: str, *, by: int | str | None = None, to: int | str | None = None) -> Difference:
        """Maps more memory at the end of a region or reservation; its address does not change, and views stay valid.

        name: of one, or a pattern such as "kv.*": all of them grow, or none. by, to: bytes, or text such as "16GiB";
        rounded up to whole chunks, or to the granularity. A region grows inside its reserved addresses, and its tensors
        with -1 in their shape grow too: use layout[name] again to see them. A reservation gets memory like its last
        mapping's, and more addresses directly after it if it is full. Raises ApplyError: HP420 there is no room, or it
        failed and was rolled back.
        """
        return update.grow(self._holding, name, by, to)

    def shrink(self, name: str, *, by: int | str | None = None, to: int | str | None = None) -> Difference:
        """Frees memory at the end of a region or reservation, or of all that a pattern such as "kv.*" means.

        by, to: bytes, or text; frees whole chunks or mappings, at most `by`, and keeps at least `to`. Raises
        ApplyError: HP420 its tensors need the memory, or it failed and was rolled back; LayoutInUse (HP409) while views
        of that memory exist; LeakError.
        """
        return update.shrink(self._holding, name, by, to)

    def remap(
        self, name: str, *, part: Part | None = None, device: str | None = None, keep_bytes: bool = True
    ) -> Difference:
        """Replaces the memory at the same addresses: of a region, a reservation, one mapping, or an allocation.

        name: of one, or a pattern such as "kv.*": all of them are replaced, or none. part: only these bytes of each
        region or reservation: "8GiB..16GiB", slice(0, 4096) or (0, "2MiB"); whole chunks or mappings. device: the new
        memory's device, or "host", where devices keep using it at its addresses: their views and graphs stay. Default: the
        old one. keep_bytes: copies the bytes; otherwise they are undefined. Access stays unchanged; if the plan says
        `owner`, that is then the new device. No kernel may use the memory meanwhile. Raises ApplyError: HP420 it is
        imported or not whole chunks, or it failed and was rolled back; HP440; LayoutInUse (HP409) while views exist;
        MachineError (HP303, HP309); LeakError.
        """
        self._holding.require_open()
        try:
            with self._holding.turn.taken():
                return remapping.remap(self._holding, name, part=part, device=device, keep_bytes=keep_bytes)
        finally:
            self._renew_pools()

    def sleep(
        self,
        names: Names = sleeping.ABLE,
        *,
        to: str | os.PathLike[str] = "host",
        unchanged: Names = (),
        checksum: bool | None = None,
        force: bool = False,
        on_unmap: OnNames | None = None,
        on_map: OnNames | None = None,
        on_bytes: OnBytes | None = None,
    ) -> Difference:
        """Frees the memory of regions, reservations, mappings or allocations and keeps their addresses.

        names: names and patterns, such as "kv.*"; default: everything that is awake and can sleep, which the result
        lists. to: where the bytes are saved: "host" (pinned memory), "drop" (nowhere) or the path of a file, which only
        this user may open. unchanged: names whose bytes still equal the copy that wake(retain=True) kept: they are not
        copied again. checksum: whether a checksum of the copy is stored, which wake() compares; None: that of a file.
        force: keeps views and captured graphs; using them faults the GPU until wake(). on_unmap(names) is called before
        anything happens; on_map(names) when the memory is restored: after wake(), or if this sleep failed. It waits for
        work of the devices; no new work may use the memory. Memory that is asleep already is skipped. Raises
        ApplyError: no such object (HP420), it cannot sleep (HP440), the kept copy is gone (HP443), the file cannot be
        written (HP413) or is not this user's alone (HP416), or it failed and was rolled back; LayoutInUse (HP409) while
        views exist; MachineError (HP303, HP309); LeakError: it is asleep, but an object could not be released.
        """
        self._holding.require_open()
        with self._holding.turn.taken():
            for pool in self._torch_pools.values():
                pool.trim()
            how = sleeping.How(to, unchanged, checksum, force)
            return sleeping.sleep(self._holding, names, how, on_unmap=on_unmap, on_map=on_map, on_bytes=on_bytes)

    def wake(self, names: Names | None = None, *, retain: bool = False, on_bytes: OnBytes | None = None) -> Difference:
        """Undoes sleep(): new memory at the same addresses, with the same access and the saved bytes.

        names: names and patterns; default: everything that is asleep. retain: keeps the copies, files too, for the next
        sleep. Memory that was dropped gets the bytes of the plan's contents, or undefined ones. Raises ApplyError: no
        such object (HP420), no room (HP442), a copy that has changed (HP443, HP416), or it failed and was rolled back;
        then it is still asleep. LeakError: it is awake, but an object could not be released.
        """
        self._holding.require_open()
        try:
            with self._holding.turn.taken():
                return sleeping.wake(self._holding, names, retain=retain, on_bytes=on_bytes)
        finally:
            self._renew_pools()

    def _renew_pools(self) -> None:
        for pool in self._torch_pools.values():
            pool.renew()

    @property
    def asleep(self) -> dict[str, str]:
        """Name of a sleeping region or allocation -> where its bytes are: host, drop or file."""
        return sleeping.asleep(self.program)

    def seal(self, name: str) -> Difference:
        """Makes a region, a reservation or one mapping read-only, or all that a pattern means, and reads that back.

        Existing views stay; writing through them faults. unseal() and update() restore every device's access. On ROCm a
        copy (hipMemcpy) into it faults too. Raises ApplyError: rolled back.
        """
        with self._holding.turn.taken():  # else a copy that is under way would write what is read-only
            return update.seal(self._holding, name)

    def unseal(self, name: str) -> Difference:
        """Undoes seal(), also for a pattern. Raises ApplyError: rolled back."""
        return update.unseal(self._holding, name)

    def export(self, name: str) -> int:
        """Returns a new file descriptor of an allocation, for another process to bind; the caller closes it.

        The memory exists while any process has the descriptor open or the memory mapped. Raises KeyError, BufferError
        (closed), ValueError (not an own allocation with shareable: posix_fd), HipError.
        Source: hipMemExportToShareableHandle.
        """
        with self._holding.lock:
            return export(self._holding.state, self[name].resource)

    def export_dma_buf(self, name: str) -> DmaBuf:
        """The memory of a region or mapping as one dma-buf, for a network card to register: docs/rdma.md.

        It has to be one piece of memory; on CUDA its plan says `rdma: true`. Raises KeyError, BufferError (closed, or
        it sleeps), ApplyError: it is not one handle (HP420), or the driver refused (HP401): HIP before 7.0.
        Source: hipMemGetHandleForAddressRange.
        """
        with self._holding.lock:
            return export_dma_buf(self._holding.state, self[name])

    def watch(self, name: str, *, on_unmap: OnName | None = None, on_map: OnName | None = None) -> Watch:
        """Calls on_unmap(name) before memory of a name is unmapped, and on_map(name) when it is mapped again.

        sleep, remap, shrink, update and close unmap memory; a network must unregister it before. After a change that
        failed on_map is called too, because the memory is still mapped. An exception of on_unmap stops the change, with
        nothing changed. Neither is called for a layout that is dropped without close(). Raises KeyError; TypeError
        for an object that cannot be called; ValueError once the layout is closed.
        """
        self._holding.require_open()
        if not isinstance(name, str):
            raise TypeError(f"expected the name of an object, not {called(name)}")
        if name not in self:
            raise KeyError(f"the layout has no '{name}'; {suggest_or_list(name, list(self))}")
        for option, callback in (("on_unmap", on_unmap), ("on_map", on_map)):
            if callback is not None and not callable(callback):
                raise TypeError(f"{option} must be a function of the name, not {type(callback).__name__}")
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

    @contextmanager
    def torch_pool(self, name: str, *, threads: Threads = "this") -> Iterator[Any]:
        """While entered, PyTorch allocations on the device come from a region, tensor or device buffer.

        threads: "this" thread's allocations, or those of "all" threads: so also gradients, which backward() makes in a
        thread of its own, and models that transformers loads with worker threads. With "all" a warning is logged if
        nothing was allocated inside. It yields a torch.cuda.MemPool; if it is full, PyTorch raises
        torch.OutOfMemoryError. Tensors keep the layout open (HP409). Memory that a region has grown by is used once
        all older tensors are deleted. Raises ValueError for memory that is not on one device, RuntimeError without a
        PyTorch for the runtime's GPUs, or with one that cannot do it for all threads.
        """
        pool = self._torch_pools.get(name)
        if pool is None or pool.is_outdated():
            pool = self._torch_pools[name] = TorchPool(self._holding, name)
        with pool.used(threads) as torch_pool:
            yield torch_pool

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
        holding, wait = self._holding, seconds(wait, "wait", zero=True)
        if holding.is_forked:  # before the lock, which a thread of the parent may hold
            return NOTHING
        if not self.closed:
            _core.expect_idle_wait()  # early: waking the thread takes longer than the code before the wait
        for pool in self._torch_pools.values():
            pool.trim()
        holding.under_way.wait(patience(), stop=force)
        with holding.lock:
            if self.closed:
                return NOTHING
            holding.watches.before(holding.state)
            try:
                undone = holding.close(force)
            except LayoutInUse:
                holding.watches.after(holding.state, is_failing=True)
                raise
        open_layouts.discard(self)
        for pool in self._torch_pools.values():
            pool.close()
        if holding.record is not None:
            holding.record.end()
        if undone.kept:
            _core.add_waiting(holding.native.retired)
        held = holding.ranks.part(wait) if holding.ranks is not None else ()
        if holding.holder is not None:
            holding.holder.detach()
        interrupt = free_waiting()
        if held or interrupt is not None:
            undone = replace(undone, ranks=held, interrupt=interrupt or undone.interrupt)
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
            if not self.closed:  # an interrupt came before close could begin
                self.close()
            raise
