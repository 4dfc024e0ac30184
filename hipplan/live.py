"""The table of live objects, by plan name: where steps meet the native journal."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Callable, Iterable, Mapping
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from hipplan import _core
from hipplan.content_steps import LANES, PIECE, Part
from hipplan.contents import lane_name, staging_name
from hipplan.errors import ApplyError, Diagnostic, reason_of
from hipplan.plain import called, number
from hipplan.program import Program
from hipplan.record import Recorder
from hipplan.steps import CreateAllocation, ImportAllocation, RegisterBuffer, Reserve, Step
from hipplan.tensorfiles import Files, Rows
from hipplan.units import round_up, version_text

if TYPE_CHECKING:
    from hipplan.undo import Undone

OnBytes = Callable[[int, int], None]
"""Called now and then while bytes are moved, with how many are done and how many there are. What it raises stops it."""


_never_let_go: list[memoryview] = []
"""Callers' memory that could not be unregistered: it must not move."""


def bindings(bind: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a caller passed as `bind`. Raises TypeError."""
    if bind is not None and not isinstance(bind, Mapping):
        raise TypeError(f"bind is a mapping of names to memory or descriptors, not {type(bind).__name__}")
    return dict(bind or {})


def host_memory(buffer: str) -> str:
    """What the memory under a registered buffer is called, where it is ours."""
    return f"{buffer} (host memory)"


class Live:
    """What a layout has made so far. The journal owns it; this only knows the names.

    bind: what the caller of apply passes by name: an object with the buffer protocol for a registered
    buffer, a file descriptor for an imported allocation. Kept alive as long as the layout.
    """

    def __init__(
        self,
        runtime: _core.Runtime,
        bind: dict[str, Any],
        devices: Iterable[int],
        record: Recorder | None = None,
    ) -> None:
        self.runtime = runtime
        self.record = record
        """Who writes down what is done; then each step is made by itself, so that it has a time of its own."""
        self._process = os.getpid()
        self._devices = list(devices)
        self.journal = _core.Journal(runtime, self._devices)
        self.files = Files()
        """Those that are read right now: of this work alone, as is what follows."""
        self.on_bytes: OnBytes | None = None
        self.callers_own: BaseException | None = None
        """What on_step or on_bytes has raised: nothing of ours, however much it looks like it."""
        self._filler: _core.Filler | None = None
        self.bindings = bind
        self._exports: dict[int, tuple[str, memoryview, range]] = {}
        """What is registered of the caller's: entry -> buffer, his memory, its addresses."""
        self._named: dict[str, int] = {}
        self._run: _core.StepRun | None = None
        self._offsets: dict[str, int] = {}
        self.before: Live | None = None
        """The names as they were before the change under way; None where nothing changes."""

    @property
    def is_forked(self) -> bool:
        """Whether this process is a child of the one whose memory this is."""
        return self._process != os.getpid()

    @property
    def _entries(self) -> dict[str, int]:
        """Journal entries by name. What was made natively gets its names when somebody asks for one."""
        if self._run is not None:
            self._run.name_made()
        return self._named

    def staged(self, gone: Iterable[str], renamed: Mapping[str, str], bind: Mapping[str, Any]) -> Live:
        """The same journal under names that can change while these stay: for the time of a change.

        gone: names here that stand for nothing there. renamed: name there -> name here. bind: all of it.
        """
        out = self.moving(Files(), None)
        out.before = self
        out.bindings = dict(bind)
        entries = self._entries
        out._named = entries.copy()
        out._run = None
        out._offsets = self._offsets.copy()
        for name in (*gone, *renamed.values()):
            out.forget(name)
        for name, was in renamed.items():
            if was in entries:
                out._named[name] = entries[was]
        return out

    def moving(self, files: Files, on_bytes: OnBytes | None) -> Live:
        """The same names for moving bytes: what is read and queued there is no other work's, whatever ends it."""
        out = copy.copy(self)
        out.files, out.on_bytes, out.callers_own, out._filler = files, on_bytes, None, None
        return out

    def add_devices(self, devices: Iterable[int]) -> None:
        """More of them: the journal waits for these too before it gives anything back."""
        self._devices = list(dict.fromkeys((*self._devices, *devices)))
        self.journal.add_devices(self._devices)

    def add(self, name: str, entry: int) -> None:
        """Names a journal entry; 0 (a peer link that was on already) is not ours and gets no name."""
        if entry:
            self._named[name] = entry  # what was made natively need not get its names for that

    def forget(self, name: str) -> None:
        """The name stands for nothing any more; what it stood for is the journal's."""
        self._entries.pop(name, None)
        self._offsets.pop(name, None)

    def entry(self, name: str) -> int:
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def address(self, name: str) -> int:
        """Where an object begins; of a reservation its aligned base."""
        return self.journal.address(self._entries[name]) + self._offsets.get(name, 0)

    def size(self, name: str) -> int:
        """Bytes of an object, as the native owner knows them."""
        return self.journal.size_bytes(self._entries[name])

    def handle(self, name: str) -> int:
        return self.journal.handle(self._entries[name])

    def offset(self, reservation: str) -> int:
        """Bytes from the start of the reserved range to its aligned base."""
        return self._offsets[reservation]

    def create_allocation(self, step: CreateAllocation) -> int:
        properties = _core.AllocationProperties(step.device, step.memory_type, step.location_type, step.handle_type)
        return self.journal.create_allocation(step.name, step.size, properties)

    def make(self, step: Step) -> None:
        """Makes one step, and records it. Raises what the step raises."""
        if self.record is None:
            step.do(self)
            return
        retries, began = _core.thread_retries(), perf_counter_ns()
        failure: BaseException | None = None
        try:
            step.do(self)
        except BaseException as error:
            failure = error
            raise
        finally:
            self.record.step(step, perf_counter_ns() - began, _core.thread_retries() - retries, failure)
            del failure  # see raise_undone

    def native_run(self, steps: _core.NativeSteps) -> _core.StepRun | None:
        """For making steps natively, those that come by the thousand. None with a record."""
        if self.record is not None:
            return None
        self._run = _core.StepRun(self.journal, steps, self._entries, self._offsets)
        return self._run

    def read_steps(self, steps: _core.NativeSteps, devices: list[int]) -> _core.Readings:
        """What HIP tells of all allocations, mappings and rights among the steps. Raises HipError."""
        return self.journal.read_steps(self.runtime, steps, self._entries, devices)

    def add_range(self, step: Reserve, entry: int) -> None:
        """Names a reservation and finds its aligned base. ApplyError HP404 if `exact` was not given."""
        self.add(step.name, entry)
        address = self.journal.address(entry)
        if step.exact and address != step.address:
            raise ApplyError(
                Diagnostic(
                    "HP404",
                    f"'{step.name}' cannot be at {step.address:#x}: it is taken, or out of reach",
                    step.origin,
                    why=f"HIP placed it at {address:#x}, and exactly that address is asked for",
                    hint="choose another address, or address_policy: prefer; "
                    "if a lock has chosen it, lock again with --address-base",
                )
            )
        base = round_up(address, step.alignment) if step.slack else address
        self._offsets[step.name] = base - address

    def register_buffer(self, step: RegisterBuffer) -> int:
        """Pins host memory: of a file, bound by the caller, or fresh. The driver call comes last."""
        journal, region = self.journal, 0
        if step.bind:
            given, address, size = self.bound_memory(step)
            memory = range(address, address + size)
            self._require_unregistered(step, given, memory)
            self._exports[journal.next()] = (step.name, given, memory)
        else:
            name = host_memory(step.name)
            if step.file:
                region = journal.map_file(name, step.file, step.size, step.read_only)
            else:
                region = journal.map_anonymous(name, step.size, step.numa_node, step.huge_pages)
            self.add(name, region)
            address, size = journal.address(region), journal.size_bytes(region)
        return journal.register_buffer(step.name, step.device, address, size, step.flags, region)

    def _require_unregistered(self, step: RegisterBuffer, given: memoryview, memory: range) -> None:
        """ApplyError HP405 for memory that is registered: runtimes give it back at the first word, and fail later."""
        for name, _, other in self._exports.values():
            if memory.start < other.stop and other.start < memory.stop:
                given.release()  # else it cannot be moved as long as the error is there
                summary = f"what is bound to '{step.bind}' does not fit '{step.name}': it is registered as '{name}'"
                hint = "register memory once, and view parts of it"
                raise ApplyError(Diagnostic("HP405", summary, step.origin, hint=hint))

    def bound(self, name: str, step: ImportAllocation | RegisterBuffer) -> Any:
        """What the caller of apply passed under a name. ApplyError HP405 if it passed nothing."""
        if name in self.bindings:
            return self.bindings[name]
        raise ApplyError(
            Diagnostic(
                "HP405",
                f"nothing is bound to '{name}', which '{step.name}' needs",
                step.origin,
                hint=f"pass bind={{'{name}': ...}} to hipplan.apply",
            )
        )

    def bound_descriptor(self, step: ImportAllocation) -> int:
        """What the caller passed for an allocation. ApplyError HP405 if it is no open file descriptor.

        The driver is not asked: HIP 7.1 takes the number for a pointer in one of its forms.
        """
        given = number(self.bound(step.bind, step))
        if given.__class__ is not int:
            wrong = f"it is {called(given)}, not a file descriptor"
        else:
            try:
                os.fstat(given)
                return int(given)
            except (OSError, OverflowError) as error:
                wrong = f"descriptor {given}: {reason_of(error)}"
        summary = f"what is bound to '{step.bind}' does not fit '{step.name}': {wrong}"
        hint = "pass what Layout.export() gave, sent from the other process over a Unix socket"
        raise ApplyError(Diagnostic("HP405", summary, step.origin, hint=hint))

    def bound_memory(self, step: RegisterBuffer) -> tuple[memoryview, int, int]:
        """What the caller passed for a buffer, its address and bytes. ApplyError HP405 if it does not fit.

        As long as the first lives, its owner cannot move the memory.
        """
        what = f"what is bound to '{step.bind}'"
        try:
            given = memoryview(self.bound(step.bind, step))
        except (BufferError, TypeError, ValueError) as error:
            hint = "pass an object with the buffer protocol, such as a NumPy array"
            told = Diagnostic("HP405", f"{what} is no memory", step.origin, why=str(error), hint=hint)
            raise ApplyError(told) from None
        size, hint = given.nbytes, ""
        if not given.c_contiguous:
            wrong, hint = "its elements do not lie one after another", "pass a copy: numpy.ascontiguousarray(it)"
        elif step.size > size or size == 0:
            wrong = f"it is {size} bytes"
        elif given.readonly and not step.read_only:
            wrong = "it is read-only"
        else:
            return given, _core.buffer_address(given), step.size or size
        given.release()
        raise ApplyError(Diagnostic("HP405", f"{what} does not fit '{step.name}': {wrong}", step.origin, hint=hint))

    def let_go(self, undone: Undone | None = None) -> None:
        """What the caller passed is his to move again, where it is not registered any more.

        undone: what could not be given back in it, a device may reach until the process ends.
        """
        if not self._exports:
            return
        with contextlib.suppress(MemoryError):  # else it is let go when nobody has the layout any more
            lost = () if undone is None else undone.leaks
            registered = {entry for entry, _, _ in self.journal.contents()}
            for entry in self._exports.keys() - registered:
                name, given, _ = self._exports.pop(entry)
                if name in lost:
                    _never_let_go.append(given)
                else:
                    given.release()

    @property
    def filler(self) -> _core.Filler:
        """Takes the work of one content step; run_filler() does it."""
        if self._filler is None:
            self._filler = _core.Filler(self.runtime)
            for device in self._devices:
                if staging_name(device) not in self:
                    continue
                staging = self.address(staging_name(device))
                for number in range(LANES):
                    stream = self.journal.stream_handle(self.entry(lane_name(device, number)))
                    self._filler.add_lane(device, stream, staging + number * PIECE, PIECE)
        return self._filler

    def at(self, part: Part) -> int:
        """The address of a part."""
        return self.address(part.object) + part.offset

    def load_part(self, name: str, part: Part, rows: Rows, begin: int) -> None:
        """Adds what one device takes of the bytes of some rows: from the `begin`th on."""
        self.filler.load(
            name, part.device, self.at(part), part.size, rows.descriptor, rows.offset, rows.row, rows.stride, begin
        )

    def run_filler(self) -> None:
        """Raises HipError; OSError and ValueError for files that change while they are read."""
        filler, self._filler = self.filler, None
        told, total = self.on_bytes, filler.total
        filler.run(None if told is None else lambda done: self.call_back(told, done, total))

    def call_back(self, function: Callable[..., object], *arguments: object) -> None:
        """Calls on_step or on_bytes. Raises what it raises."""
        try:
            function(*arguments)
        except BaseException as error:
            self.callers_own = error
            raise


def native_steps(program: Program) -> _core.NativeSteps:
    """The steps as the compiled part wants them; kept with the program, which may be applied many times."""
    memory = vars(program)  # where cached_property keeps things too
    if "native_steps" not in memory:
        memory["native_steps"] = _core.NativeSteps(program.steps)
    steps: _core.NativeSteps = memory["native_steps"]
    return steps


def described(runtime: _core.Runtime) -> dict[str, str]:
    """Which library a runtime is, and the versions that it and its driver tell."""
    try:
        driver = version_text(runtime.driver_version())
    except _core.HipError as error:
        driver = error.name
    return {"path": runtime.path, "version": version_text(runtime.version), "driver_version": driver}
