"""Changes a layout from one program to another as a transaction: apply, update, grow, remap, seal, sleep and others.

Order: new objects are made and read back; then bytes that stay are copied, and existing objects are altered and read
back; then contents are loaded (a sleep that saves bytes copies them before it alters); then memory is sealed, and read
back. Then native code decides, and what is no longer needed (old or new) is freed last. A failure before the decision
leaves the layout unchanged: addresses, access, and all bytes except those that contents were writing.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from time import monotonic_ns
from typing import NoReturn

from hipplan import _core
from hipplan.errors import ApplyError, Diagnostic, GroupError, GroupInDoubt, LayoutInUse, LeakError
from hipplan.files.tensorfiles import Files
from hipplan.kinds.reservation.live import Reserve
from hipplan.layout.bound import Bound, bindings, bound, still_needed
from hipplan.layout.failures import hint_for, mismatch, reasons_of
from hipplan.layout.leases import in_use
from hipplan.layout.mover import Callbacks, Mover
from hipplan.layout.options import DEFAULT, Options
from hipplan.layout.peer_links import require_closed
from hipplan.layout.record import Recorder
from hipplan.layout.state import State
from hipplan.layout.together import PlacesTaken, Together, decide_together, in_order, memory_of_others
from hipplan.layout.undo import Undone, free_retired, report_leaks, retried_text, wait_until_idle
from hipplan.layout.verify import ToRead, native_rows, verify
from hipplan.lowering.lowered import Lowering, lower
from hipplan.lowering.openings import rights_to_read_back
from hipplan.lowering.rows import ChangeRows
from hipplan.program.backups import is_backup
from hipplan.program.checks import Check
from hipplan.program.content_steps import check_files
from hipplan.program.facts import made_slots
from hipplan.program.runs import plain
from hipplan.program.steps import Step


class Transaction:
    """One change of a layout: prepare(), then commit() or roll_back(); run() does all of it.

    If it is interrupted, it is rolled back when it is dropped, at the latest.
    """

    def __init__(self, holdings: _core.Holdings, change: Lowering, options: Options = DEFAULT) -> None:
        self.holdings = holdings
        self.change = change
        self._lowered = change.lowered
        self.old: State = holdings.state
        self.retries = 0
        """Calls that were repeated because the driver returned NotReady."""
        self._bindings = still_needed({**self.old.bindings, **bindings(options.bind)}, change.planned.new)
        self._options = options
        self._is_observed = options.on_step is not None or options.on_progress is not None
        self._number = 0
        """The number of the running step, from 0."""
        self._step: Step | None = None
        """The running step."""
        self._bound: Bound = {}
        self._callbacks = Callbacks()
        self._hint = ""
        """What to do about the driver call that failed."""
        self._total = change.lowered.step_count
        self._change: _core.Change | None = None
        self._checks: Sequence[Check] = ()
        self._copies = self.old.copies.for_change()
        self._devices: Mapping[str, int] = {}
        """The devices that were last set to be waited for."""

    def run(self) -> None:
        """Raises ApplyError after rolling back: a driver call failed (HP401), what was read back differs (HP402), an
        address or a binding cannot be had (HP404, HP405). Any other exception rolls back and goes on. LayoutInUse with
        nothing changed; LeakError if the change was made, but something could not be freed."""
        report_leaks(_core.take_leaks_here())  # so that the log contains only leaks of this change at the end
        before = _core.thread_retries()
        try:
            try:
                self.make_all()
            finally:
                self.retries = _core.thread_retries() - before
            if self._options.together is not None:
                decide_together(self._options.together, self._decide)
            undone = self.commit()
        except GroupInDoubt as doubt:
            doubt.undo = self.roll_back
            raise
        except BaseException as error:
            self._stopped(error)
        undone.raise_failures()

    def make_all(self) -> None:
        """Make and alter all objects, read them back, and load contents. Raises the first failure."""
        change = self._lowered
        require_closed(change, self.old, self.holdings)
        self._copies.reopen(self.change.planned)
        if not change.contents:
            self._make()
            self._alter()
            return
        with contextlib.closing(Files(self._copies.descriptors, change.new.working_folder)) as files:
            check_files(change.contents, files)
            self._make()
            if change.saves:
                wait_until_idle(self.old.runtime, change.devices_of_both)
                self._fill(files)
            self._alter()
            if not change.saves:
                self._fill(files)
        self._seal()

    def _make(self) -> None:
        change, old = self._lowered, self.old
        altering = change.altering
        rows = self._begin(altering)
        if change.links:
            self._advance(change.links)
            if self._options.verify:
                self._read_back(ToRead(rights_to_read_back(change)), state=old)
        self._add(change.additions)
        if self._options.verify and (change.additions or not altering):
            made = None if altering or change.seals or change.links else rows
            self._read_back(ToRead(change.filling, change.additions if old.lowered.steps else None, made))

    def _alter(self) -> None:
        change, old = self._lowered, self.old
        altering = change.altering
        if altering:
            if change.takes_out:  # hipMemUnmap does not wait for kernels
                self._step = next(step for step in change.changes if step.takes_out)
                wait_until_idle(old.runtime, change.devices_of_both)
            self._advance(altering)
            if self._options.verify:
                self._read_back(ToRead(change.filling, change.to_read_back(change.filling)))

    def _add(self, steps: Sequence[Step]) -> None:
        """Make new objects: this rank's own, then memory of other ranks."""
        if self._options.together is None:
            self._advance(steps)
            return
        placed, own, imports, rest = in_order(steps, self._options.together)
        self._place(placed, self._options.together)
        self._advance(own)
        making, slots = _core.Snapshot(self._started), self._lowered.new.slots
        owned = {step.name: step for step in self._lowered.new.own_memory()}

        def share(name: str) -> int:
            self._step = owned[name]  # for the error if the driver refuses it
            return making.share(slots[name])

        with memory_of_others(self._options.together, imports, share) as came:
            if came:
                numbers = {step.name: number for number, step in enumerate(steps, len(self._lowered.links))}
                self._started.bind({**self._bound, **{numbers[name]: (given, 0) for name, given in came.items()}})
            self._advance(rest)

    def _place(self, ranges: Sequence[Step], together: Together) -> None:
        """Raises PlacesTaken if these addresses are not free in all ranks."""
        occupied: ApplyError | None = None
        try:
            self._advance(ranges, gives_up=together.deadline())
        except ApplyError as error:  # one of them cannot be had
            occupied = error
        if not together.all_placed(occupied):
            raise PlacesTaken from occupied

    def _seal(self) -> None:
        change = self._lowered
        if change.seals:
            self._advance(change.seals)
            if self._options.verify:
                sealed = change.to_read_back(change.new) if self.old.lowered.steps else None
                self._read_back(ToRead(change.new, sealed))

    def commit(self) -> Undone:
        """Commit the change, then free the replaced objects. Raises ValueError if the layout was closed meanwhile."""
        if not self._started.committed:
            self._decide()
        undone = self._free_retired(self.change.planned.new.devices)
        self._copies.remove_old()
        return undone

    def _decide(self) -> None:
        self._copies.keep_only(self.change.planned.new)
        if not self._started.commit(self._state):
            raise ValueError("the layout is closed" if self.holdings.closed else "the change was rolled back")

    def roll_back(self) -> Undone:
        """Restores the old state and releases what was made."""
        if self._change is not None:
            self._change.roll_back()
        undone = self._free_retired(self.old.program.devices)
        self._copies.remove_new()
        return undone

    def _free_retired(self, devices: Mapping[str, int]) -> Undone:
        undone = free_retired(self.holdings.retired, self._options.record)
        self._wait_for(devices)
        return undone

    def _wait_for(self, devices: Mapping[str, int]) -> None:
        """Set the devices that releases wait for from now on."""
        if devices != self._devices:
            self._devices = devices
            self.holdings.retired.set_devices([*devices.items()])

    @property
    def _started(self) -> _core.Change:
        if self._change is None:
            raise RuntimeError("the change was not begun")
        return self._change

    @property
    def _state(self) -> State:
        """The state that is being made."""
        new, lowered, made = self.change.planned.new, self._lowered.new, _core.Snapshot(self._started)
        return State(new, lowered, self.old.runtime, made, self._checks, self._bindings, self._copies)

    def _begin(self, altering: Sequence[Step]) -> _core.Rows:
        """Pass the rows of all steps to native code."""
        change, holdings = self._lowered, self.holdings
        self._wait_for(change.devices_of_both)
        slots, timed = len(change.new.slots), self._options.record is not None
        if altering or change.seals or self.old.lowered.steps:
            made = ChangeRows(change.new, self.old.lowered, change.about_as_known.new.owners)
            parts = filter(len, (change.links, change.additions, altering, change.seals))
            rows = _core.Rows([row for part in parts for row in made.rows(part)])
            before = self.old.lowered.slots
            same, renewed, kept = change.kept_slots()
            kept += made.kept
            self._change = _core.Change(
                holdings, rows, slots, made.extra, same, renewed, kept,
                behind=made_slots([step for step in plain(change.gone) if is_backup(step)], before),
                spared=made_slots(change.spared, before), frees_spares=change.retain is False, timed=timed,
            )  # fmt: skip
        else:
            rows = native_rows(change.new)
            self._change = _core.Change(holdings, rows, slots, timed=timed)
        if holders := self._change.bar(self._options.force, change.keeps_views):
            raise LayoutInUse(in_use(holders, "first delete the arrays and tensors made from it"))
        if change.new.bindings:
            gone = {step.name for step in change.gone}
            self._bound = bound((*change.links, *change.additions), self._bindings, self.old, gone)
            self._change.bind(self._bound)
        return rows

    def _advance(self, steps: Sequence[Step], gives_up: float = math.inf) -> None:
        """Runs the rows of these steps, which are the next. gives_up: when a search for an address ends."""
        change, first = self._started, self._number
        begin = change.done
        end = begin + len(steps)
        while change.done < end:
            self._step = None  # so that an exception of a signal handler is not blamed on a step
            done = change.done
            if self._is_observed:
                self._call_on_step(None if change.searching else steps[done - begin])
            failure: BaseException | None = None
            try:
                change.advance(end if self._options.on_step is None else done + 1, gives_up)
            except BaseException as error:
                failure = error
                if change.failed:
                    self._step = steps[change.done - begin]
                if isinstance(error, _core.AddressTaken) and isinstance(self._step, Reserve):
                    raise self._step.not_had(str(error), error.address) from None
                raise
            finally:
                self._number = first + change.done - begin
                if self._options.record is not None:
                    self._record_steps(self._options.record, steps[done - begin : change.done - begin], done, failure)
                del failure  # see _raise_undone
        self._step = None

    def _record_steps(self, record: Recorder, steps: Sequence[Step], first: int, failure: BaseException | None) -> None:
        change = self._started
        for row, step in enumerate(steps, first):
            record.step(step, *change.time_of(row), None)
        if failure is not None and change.failed and self._step is not None:
            record.step(self._step, *change.time_of(change.done), failure)

    def _read_back(self, wanted: ToRead, state: State | None = None) -> None:
        """Raises HipError; ApplyError (HP402) if a value differs. state: where it is; default: what is being made."""
        began = monotonic_ns()
        self._checks = checks = verify(state or self._state, wanted)
        wrong = checks.mismatches()
        if self._options.record is not None:
            self._options.record.verified(len(checks), wrong, began)
        if wrong:
            raise ApplyError([mismatch(check) for check in wrong])

    def _fill(self, files: Files) -> None:
        mover = Mover(self._state, files, self._options.on_bytes, self._callbacks, self.old, self._copies)
        for step in self._lowered.contents:
            self._call_on_step(step)
            self._step = step
            began, retries = monotonic_ns(), _core.thread_retries()
            failure: BaseException | None = None
            try:
                mover.do(step)
            except BaseException as error:
                failure = error
                raise
            finally:
                if self._options.record is not None:
                    took, again = monotonic_ns() - began, _core.thread_retries() - retries
                    self._options.record.step(step, began, took, again, failure)
                del failure
            self._number += 1
        self._step = None

    def _call_on_step(self, step: Step | None) -> None:
        """Call on_step and other observers before a step. None: in the middle of one. Raises what they raise."""
        if self._options.on_progress is not None:
            self._callbacks.call(self._options.on_progress, self._number, self._total)
        if self._options.on_step is not None and step is not None:
            self._step = step
            self._callbacks.call(self._options.on_step, self._number, step)

    def _stopped(self, error: BaseException) -> NoReturn:
        """Roll back, unless native code has decided already."""
        try:
            if self._change is not None and self._change.committed:
                undone = self._free_retired(self.change.planned.new.devices)
                if undone.failures:
                    error.__cause__ = LeakError(undone.diagnostics(), undone=undone)
                raise error
            if isinstance(error, _core.HipError):
                self._hint = hint_for(error, self._step, self.old.runtime)
            if self._options.record is not None and not isinstance(error, PlacesTaken):
                self._options.record.failed(error)
            undone = self.roll_back()
            if isinstance(error, PlacesTaken):
                undone.raise_failures()
                raise error
            if isinstance(error, GroupError) and undone.failures:
                error = GroupError([*error.diagnostics, *undone.diagnostics()], undone=undone)
            if isinstance(error, GroupError):
                if undone.interrupt is not None:
                    raise undone.interrupt from error
                raise error
            if isinstance(error, Exception) and self.holdings.closed:
                error, self._step = ValueError("the layout is closed"), None
            self._raise_undone(error, undone)
        finally:
            del error  # its traceback has this frame: a circle would hold what was bound until a garbage collection

    def _raise_undone(self, error: BaseException, undone: Undone) -> NoReturn:
        """Raise the error that stopped the change, with a note on what was undone."""
        failed = error  # defined even if the next line is interrupted
        try:
            failed = self._failed(error, undone)
            if undone.interrupt is not None and isinstance(failed, Exception):
                raise undone.interrupt from failed  # ^C during a roll back: the roll back is done
            if failed is error:
                raise error
            raise failed from error
        finally:  # a circle of errors and frames would hold what the caller has bound until a garbage collection
            self._callbacks.raised = None
            del error, failed

    def _failed(self, error: BaseException, undone: Undone) -> BaseException:
        """The error to raise: hipplan's own with notes on what was undone, any other unchanged."""
        step = self._step
        notes = (f"retried: {retried_text(self.retries)}",) if self.retries else ()
        notes = (*notes, f"undone: {undone.summary()}")
        changed = tuple(_core.take_leaks_here())  # the only place where they are reported
        notes = (*notes, *(f"not restored: {line}" for line in changed))
        reasons: list[Diagnostic] = []
        if isinstance(error, ApplyError) or error is not self._callbacks.raised:
            reasons = reasons_of(error, step, f"{self._number + 1} of {self._total}", self._hint, notes)
        diagnostics = reasons + undone.diagnostics()
        if not reasons:
            if changed:
                diagnostics.append(Diagnostic("HP403", "something could not be restored", notes=changed))
            if diagnostics:
                error.__cause__ = ApplyError(diagnostics, undone=undone, not_as_it_was=changed)
            return error
        name = step.name if step is not None else getattr(error, "step", "")
        call, code = (error.call, error.code) if isinstance(error, _core.HipError) else ("", 0)
        return ApplyError(diagnostics, step=name, call=call, code=code, undone=undone, not_as_it_was=changed)


def run_at_free_addresses(native: _core.Holdings, change: Lowering, options: Options) -> Transaction:
    """Runs the transaction of a change; of a group also with other addresses, while those proposed are not free in all
    ranks. Raises as Transaction.run()."""
    while True:
        transaction = Transaction(native, change, options)
        try:
            transaction.run()
            return transaction
        except PlacesTaken:
            assert options.together is not None
            change = lower(options.together.at_other_addresses(change.planned), change.lowered.old)
