"""Changes of a live layout in place: its plan, and where its memory is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hipplan.layout import overflow, sleeping
from hipplan.layout.engine import carry_out
from hipplan.layout.holding import Holding
from hipplan.layout.notice import OnNames
from hipplan.layout.of_rank import InGroup
from hipplan.layout.options import OnBytes, OnStep, Options
from hipplan.layout.pooling import HasPools
from hipplan.layout.torchpool import TorchPool
from hipplan.layout.verbs import Grow, Remap, Seal, Shrink, Unseal, Update
from hipplan.plain import callback, flag
from hipplan.program.borders import Part
from hipplan.program.difference import Difference
from hipplan.program.patterns import Names, listed, required
from hipplan.program.sleepers import ABLE

if TYPE_CHECKING:
    from hipplan.language.loader import LoadedPlan, PlanSource


class ChangesInPlace(HasPools, InGroup):
    """A layout's methods that change its plan or move its memory. Each is all or nothing."""

    def __init__(self, holding: Holding) -> None:
        super().__init__(holding)
        self._torch_pools: dict[str, TorchPool] = {}

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
        from hipplan.layout.wanted import WantedPlan

        wanted = WantedPlan(plan, vars, listed(lose), bind)
        options = Options(
            bind=bind, on_step=on_step, verify=verify, lose=wanted.lose, is_reviewed=wanted.is_reviewed
        ).checked()
        return carry_out(self._holding, Update(wanted), options)

    def grow(self, name: str, *, by: int | str | None = None, to: int | str | None = None) -> Difference:
        """Maps more memory at the end of a region or reservation; its address does not change, and views stay valid.

        name: of one, or a pattern such as "kv.*": all of them grow, or none. by, to: bytes, or text such as "16GiB";
        rounded up to whole chunks, or to the granularity. A region grows inside its reserved addresses, and its tensors
        with -1 in their shape grow too: use layout[name] again to see them. A reservation gets memory like its last
        mapping's, and more addresses directly after it if it is full. A region with `overflow: host` gets memory of the
        host for what its device has no room for. Raises ApplyError: HP420 there is no room, or it
        failed and was rolled back.
        """
        if overflow.overflows(self._holding.state.program, required(name)):
            return overflow.grow(self._holding, Grow(name, by, to))
        return carry_out(self._holding, Grow(name, by, to))

    def shrink(self, name: str, *, by: int | str | None = None, to: int | str | None = None) -> Difference:
        """Frees memory at the end of a region or reservation, or of all that a pattern such as "kv.*" means.

        by, to: bytes, or text; frees whole chunks or mappings, at most `by`, and keeps at least `to`. Raises
        ApplyError: HP420 its tensors need the memory, or it failed and was rolled back; LayoutInUse (HP409) while views
        of that memory exist; LeakError.
        """
        return carry_out(self._holding, Shrink(required(name), by, to))

    def remap(
        self,
        name: str,
        *,
        part: Part | None = None,
        device: str | None = None,
        keep_bytes: bool = True,
        retain: bool = False,
    ) -> Difference:
        """Replaces the memory at the same addresses: of a region, a reservation, one mapping, or an allocation.

        name: of one, or a pattern such as "kv.*": all of them are replaced, or none. part: only these bytes of each
        region or reservation: "8GiB..16GiB", slice(0, 4096) or (0, "2MiB"); whole chunks or mappings. device: the new
        memory's device, or "host", where devices use it at its addresses: their views and graphs stay. Default: the old
        one. keep_bytes: copies the bytes; otherwise they are undefined. retain: the layout keeps the host's memory that
        goes, until the next remap to a GPU or wake() without it: the next move to the host then makes none. Access
        stays unchanged; if the plan says
        `owner`, that is then the new device. No kernel may use the memory meanwhile. Raises ApplyError: HP420 it is
        imported or not whole chunks, or it failed and was rolled back; HP440; LayoutInUse (HP409) while views exist;
        MachineError (HP303, HP309); LeakError.
        """
        if device is not None:
            required(device, "the name of a device")
        keep_bytes, retain = flag(keep_bytes, "keep_bytes"), flag(retain, "retain")
        try:
            return carry_out(self._holding, Remap(required(name), part, device, keep_bytes, retain))
        finally:
            self._renew_pools()

    def sleep(
        self,
        names: Names = ABLE,
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
        this user may open; "mapped": the memory moves to the host and stays in use at its addresses, as by remap().
        unchanged: names whose bytes still equal the copy that wake(retain=True) kept: they are not
        copied again. checksum: whether a checksum of the copy is stored, which wake() compares; None: that of a file.
        force: keeps views and captured graphs; using them faults the GPU until wake(). Names and tags of pools for
        PyTorch sleep, too, to "host" or "drop"; their tensors stay, and no view or callback counts there (HP409: a
        thread allocates in one); the result does not list them. on_unmap(names) is called before anything happens;
        on_map(names) when the memory is restored: after wake(), or if this sleep failed. It waits for work of the
        devices; no new work may use the memory. Memory that is asleep already is skipped. Raises
        ApplyError: no such object (HP420), it cannot sleep (HP440), the kept copy is gone (HP443), the file cannot be
        written (HP413) or is not this user's alone (HP416), or it failed and was rolled back; LayoutInUse (HP409) while
        views exist; MachineError (HP303, HP309); LeakError: it is asleep, but an object could not be released.
        """
        for name, given in (("on_unmap", on_unmap), ("on_map", on_map), ("on_bytes", on_bytes)):
            callback(given, name)
        return sleeping.sleep(
            self._holding, self._torch_pools.values(), names, to=to, unchanged=unchanged,
            checksum=None if checksum is None else flag(checksum, "checksum"), force=flag(force, "force"),
            on_unmap=on_unmap, on_map=on_map, on_bytes=on_bytes,
        )  # fmt: skip

    def wake(self, names: Names | None = None, *, retain: bool = False, on_bytes: OnBytes | None = None) -> Difference:
        """Undoes sleep(): new memory at the same addresses, with the same access and the saved bytes.

        names: names and patterns; default: everything that is asleep. retain: keeps the copies, files too, and the
        host's memory that was mapped, for the next sleep. What was mapped wakes in a change of its own, after the
        others. Memory that was dropped gets the bytes of the plan's contents, or undefined ones. Raises ApplyError: no
        such object (HP420), no room (HP442), a copy that has changed (HP443, HP416), or it failed and was rolled back;
        then it is still asleep. LeakError: it is awake, but an object could not be released. Copies are freed behind
        the caller: what fails there is logged by the next change, or raised by close().
        """
        retain = flag(retain, "retain")
        callback(on_bytes, "on_bytes")
        try:
            return sleeping.wake(self._holding, names, retain=retain, on_bytes=on_bytes)
        finally:
            self._renew_pools()

    def _renew_pools(self) -> None:
        for pool in self._torch_pools.values():
            pool.renew()

    @property
    def asleep(self) -> dict[str, str]:
        """Name of a sleeping region, pool or allocation -> where its bytes are: host, drop, file or mapped."""
        pools = {pool.region: pool.asleep_in for pool in self._holding.pools if pool.asleep_in}
        return sleeping.asleep(self._holding.state.program) | pools

    @property
    def retained(self) -> int:
        """Bytes of host memory that remap() or wake() has kept with `retain`, and that nothing uses."""
        return self._holding.native.spare_bytes

    def seal(self, name: str) -> Difference:
        """Makes a region, a reservation or one mapping read-only, or all that a pattern means, and reads that back.

        Existing views stay; writing through them faults. unseal() and update() restore every device's access. On ROCm a
        copy (hipMemcpy) into it faults too. Raises ApplyError: rolled back.
        """
        return carry_out(self._holding, Seal(required(name)))

    def unseal(self, name: str) -> Difference:
        """Undoes seal(), also for a pattern. Raises ApplyError: rolled back."""
        return carry_out(self._holding, Unseal(required(name)))
