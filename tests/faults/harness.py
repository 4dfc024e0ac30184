"""Failing driver calls on purpose: after each, the simulator's ledger must be the one before plus reported leaks.

A `Phase` begins with something unharmed, acts while calls fail, and ends by giving back what is left. `sweep` fails
each call of the act in turn, once or for ever; `sweep_undo` fails one call and then each call of the roll back.
"""

from __future__ import annotations

import ctypes
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hipplan import _core
from hipplan.errors import HipplanError
from hipplan.layout.layout import Layout
from hipplan.layout.options import Options
from hipplan.layout.run import run
from hipplan.layout.undo import undone_of, wait_until_freed
from hipplan.machines.machine import sim_profile
from hipplan.machines.profiles import load_machine
from hipplan.program.program import Program
from tests.conftest import WHOLE, Key, Simulator, keys_of
from tests.faults.counting import cut, each, points

CODES = {
    "hipErrorOutOfMemory": 2,
    "hipErrorInvalidValue": 1,
    "hipErrorNotReady": 600,
    "hipErrorNotSupported": 801,
    "hipErrorUnknown": 999,
}
ONCE, FOR_EVER = "", "+"
RETRIES = 6
"""How often a call that says NotReady is made again."""

RELEASES = ("7.2.53211", "7.3.0")
"""Of HIP: up to 7.2 each map and its access are calls by themselves, from 7.3 on they are made in rows."""
DEFECTS = {"7.2.53211": ("set_access_sums_in_heap_order", "peer_access_opens_mappings")}
"""Quirks of these that decide which calls a change makes."""

SETS_BACK = "hipSetDevice"
"""The one call whose failure may go unheard: it also sets the caller's device back, which is tried again and no
reason to fail. The call after it fails then, if all do."""

RELEASING = ("hipMemUnmap", "hipMemRelease", "hipMemAddressFree", "hipHostFree")
"""Calls after whose failure an object is left."""

Error = HipplanError | _core.HipError


class Phase(ABC):
    """One thing that hipplan does, for calls to fail in. Subclass it; tests/faults/phases.py has the plain ones."""

    keeps = False
    """Whether what `begin` made is still there after an act that failed."""

    def __init__(self, sim: Simulator) -> None:
        self.sim = sim

    @property
    def name(self) -> str:
        """What the points are counted under."""
        return type(self).__name__.lower()

    @abstractmethod
    def begin(self) -> Any:
        """Makes what the act starts from; no call fails."""

    @abstractmethod
    def act(self, state: Any) -> None:
        """What calls fail in. Raises HipplanError or HipError, nothing else."""

    def expected(self, before: set[Key], error: Error) -> set[Key]:
        """What must be alive after an act that failed: what was, and the leaks it reported."""
        return before | keys_of(failures_of(error))

    def check(self, state: Any, error: Error | None, call: str, code: str, lasting: bool) -> None:  # noqa: B027
        """Further claims, when calls work again. call: the first one that failed, with `code`, for ever if lasting."""

    def end(self, state: Any) -> None:  # noqa: B027
        """Free what is left of `begin`."""


@contextmanager
def as_release(sim: Simulator, version: str, *quirks: str) -> Iterator[None]:
    """The simulator says that it is this release of HIP, and has these defects; all else about it stays."""
    usual = sim_profile(load_machine("sim-2"))
    kept = [line for line in usual.splitlines() if not line.startswith("hip_version")]
    sim.runtime.configure("\n".join([f"hip_version={version}", *(f"quirk.{quirk}=1" for quirk in quirks), *kept]))
    try:
        yield
    finally:
        sim.runtime.configure(usual)


def woken(layout: Layout, **how: Any) -> None:
    """layout.wake(), and the end of what it frees behind itself: what fails there is this call's failure, too."""
    error: HipplanError | None = None
    try:
        layout.wake(**how)
    except HipplanError as raised:
        error = raised
    wait_until_freed()
    report = _core.UndoReport()
    layout._holding.native.retired.report_behind(report)
    undone = undone_of(report)
    if error is not None and undone.failures:
        error.undone = undone if error.undone is None else error.undone.and_then(undone)
    if error is not None:
        raise error
    undone.raise_failures()


def failures_of(error: Error | None) -> tuple[Any, ...]:
    """What an error reports as not freed."""
    undone = getattr(error, "undone", None)
    return () if undone is None else tuple(undone.failures)


@contextmanager
def same_calls_each_time() -> Iterator[None]:
    """Signals wait for the end of each series of calls: where a series ends by the clock, the current device is read
    and set again, and the number of calls would depend on how busy the machine is."""
    _core.check_signals_every(ms=3_600_000)
    try:
        yield
    finally:
        _core.check_signals_every(ms=5)


@same_calls_each_time()
def calls_of(phase: Phase, to: Path) -> list[str]:
    """The driver calls of an act that nothing disturbs, in order. to: a file for the trace."""
    state = phase.begin()
    to.unlink(missing_ok=True)
    phase.sim.runtime.trace_to(str(to))
    phase.act(state)
    phase.sim.runtime.trace_to("")
    phase.end(state)
    return [json.loads(line)["call"] for line in to.read_text().splitlines()] if to.exists() else []


def chosen(calls: list[str], everywhere: bool = True) -> list[tuple[int, str]]:
    """The calls to fail, by number: all of them, or the first and the last of those that come after the same call.

    So each kind of call fails in each place that it has in a plan, but not for each of the hundred alike. With
    everywhere=False its first and last place will do.
    """
    numbered = list(enumerate(calls, 1))
    if WHOLE:
        return numbered
    places: dict[tuple[str, str], list[int]] = {}
    for n, call in numbered:
        places.setdefault((calls[n - 2] if n > 1 and everywhere else "", call), []).append(n)
    ends = {n for alike in places.values() for n in (alike[0], alike[-1])}
    return [(n, call) for n, call in numbered if n in ends]


def sweep(phase: Phase, calls: list[str], code: str, mode: str) -> None:
    """Fails each of the calls in turn, for ever with mode FOR_EVER."""
    taken = chosen(calls)
    cut[phase.name] += len(calls) - len(taken)
    for n, call in taken:
        _fail(phase, n, call, code, mode)


def has_turn(sim: Simulator, mode: str) -> bool:
    """Whether a mode is this release's own: unless a sweep is whole, one has calls that fail once, one for ever."""
    return WHOLE or (sim.runtime.version >= 7_03_00000) == (mode == ONCE)


def require_turn(sim: Simulator, mode: str, number: int | None = None) -> None:
    """Skips a sweep that is one of many like it: of acts that have a number, each second one has the other mode."""
    is_other = number is not None and number % 2 == (mode == FOR_EVER)
    if not has_turn(sim, mode) or (is_other and not WHOLE):
        pytest.skip("make reliability has both modes on both releases")


def sweep_codes(phase: Phase, calls: list[str], mode: str) -> None:
    """Fails each of the calls in turn, with each code that hipplan may treat otherwise.

    Unless the sweep is whole, a call fails with one code: with NotReady each second call of the mode that is the
    release's own, so that each is retried on one of two releases; with others in turns elsewhere.
    """
    assert calls, "no call was made that could fail"
    alike = [code for code in CODES if code != "hipErrorNotReady"]
    later = phase.sim.runtime.version >= 7_03_00000
    turn = 2 * later + (mode == FOR_EVER)
    cut[phase.name] += len(calls) * len(CODES)
    for n, call in chosen(calls):
        codes = list(CODES)
        if not WHOLE:
            is_retried = has_turn(phase.sim, mode) and (n + later) % 2 == 0
            codes = ["hipErrorNotReady"] if is_retried else [alike[(n // 2 + turn) % len(alike)]]
        cut[phase.name] -= len(codes)
        for code in codes:
            _fail(phase, n, call, code, mode)


def _fail(phase: Phase, n: int, call: str, code: str, mode: str) -> None:
    error = inject(phase, f"*@{n}{mode}={code}", call, code, lasting=mode == FOR_EVER)
    if code == "hipErrorNotReady" and mode == ONCE:
        assert error is None, f"call {n}, {call}, was not retried: {error}"


def sweep_undo(phase: Phase, calls: list[str], code: str) -> None:
    """Fails each call of the act, and for each of them every call of the undo: the first error stays first.

    Unless the sweep is whole, each kind of call fails once in the act, and each fifth call of its undo.
    """
    assert calls, "no call was made that could fail"
    last = {call: n for n, call in enumerate(calls, 1)}  # of each kind of call, where most is to be undone
    taken = [*enumerate(calls, 1)] if WHOLE else [*zip(last.values(), last, strict=True)]
    cut[f"roll backs of {phase.name}"] += len(calls) - len(taken)
    for n, call in taken:
        calls_made = _calls_until_undone(phase, n, code)
        for m in each(f"roll backs of {phase.name}", range(n + 1, calls_made + 1), 5):
            inject(phase, f"*@{n}={code}; *@{m}=hipErrorUnknown", call, code)


@same_calls_each_time()
def _calls_until_undone(phase: Phase, n: int, code: str) -> int:
    empty = phase.sim.alive()
    state = phase.begin()
    phase.sim.runtime.arm_faults(f"*@{n}={code}")
    try:
        phase.act(state)
    except (HipplanError, _core.HipError):
        made = phase.sim.runtime.calls_counted()
    else:
        made = 0
    phase.sim.runtime.arm_faults("")
    phase.end(state)
    phase.sim.free_everything(but=empty)
    return made


@same_calls_each_time()
def inject(phase: Phase, rules: str, call: str, code: str, lasting: bool = False) -> Error | None:
    """Acts once under fault rules and holds the ledger against the report; returns the error that came of it."""
    runtime = phase.sim.runtime
    empty = phase.sim.alive()
    state = phase.begin()
    before = phase.sim.alive() if phase.keeps else empty
    error: Error | None = None
    runtime.arm_faults(rules)
    try:
        phase.act(state)
    except (HipplanError, _core.HipError) as caught:
        error = caught
    fired = runtime.faults_fired()
    runtime.arm_faults("")
    points[phase.name] += 1

    if error is not None:
        assert phase.sim.alive() == phase.expected(before, error), f"{rules}: {error}"
    assert fired, f"{rules}: that call was never made"
    phase.check(state, error, call, code, lasting)
    phase.end(state)
    left = phase.sim.alive()
    assert left == empty | (keys_of(failures_of(error)) & left), f"{rules}: {error}"
    if left != empty:
        phase.sim.free_everything(but=empty)
    if lasting:
        _core.take_leaks()  # what could not even set the current device back
        ctypes.CDLL(runtime.path).hipSetDevice(0)
    return error


class Apply(Phase):
    """All steps and the read-back; what fails is rolled back."""

    def __init__(self, sim: Simulator, program: Program, bind: Mapping[str, Any]) -> None:
        super().__init__(sim)
        self.program = program
        self.bind = bind

    def begin(self) -> list[Layout]:
        return []

    def act(self, state: list[Layout]) -> None:
        state.append(run(self.program, self.sim.runtime, Options(bind=self.bind)))

    def end(self, state: list[Layout]) -> None:
        for layout in state:
            layout.close()

    def check(self, state: list[Layout], error: Error | None, call: str, code: str, lasting: bool) -> None:
        if error is None:  # what sets the caller's device back is tried twice, what says NotReady more often
            assert state and not lasting
            return
        first, *more = error.diagnostics
        assert first.code == "HP401"
        assert first.notes[0].startswith(f"driver: {error.call}(")
        assert first.notes[0].endswith(f"-> {code} ({CODES[code]})")
        assert error.code == CODES[code]
        assert error.call == call or (call == SETS_BACK and lasting)
        assert {diagnostic.code for diagnostic in more} <= {"HP403", "HP406"}
        assert error.exit_code == (5 if error.leaks or error.not_as_it_was else 4)
        text = str(error)
        for name in error.leaks:
            assert f"'{name}'" in text


class Verify(Phase):
    """Reading a live layout back: a query that fails changes nothing. One layout serves all."""

    keeps = True

    def __init__(self, sim: Simulator, layout: Layout) -> None:
        super().__init__(sim)
        self.layout = layout

    def begin(self) -> Layout:
        return self.layout

    def act(self, state: Layout) -> None:
        assert state.drift() == []

    def check(self, state: Layout, error: Error | None, call: str, code: str, lasting: bool) -> None:
        if error is not None:
            assert isinstance(error, _core.HipError) and error.code == CODES[code]
            assert error.call == call or (call == SETS_BACK and lasting)
        assert not lasting or error is not None


class Teardown(Phase):
    """Closing a live layout: objects that cannot be freed are named, and the others are freed."""

    def __init__(self, sim: Simulator, program: Program, bind: Mapping[str, Any]) -> None:
        super().__init__(sim)
        self.program = program
        self.bind = bind

    def begin(self) -> Layout:
        return run(self.program, self.sim.runtime, Options(bind=self.bind))

    def act(self, state: Layout) -> None:
        self.objects = state.close().count

    def check(self, state: Layout, error: Error | None, call: str, code: str, lasting: bool) -> None:
        assert state.closed
        if error is None:
            assert not lasting or call == SETS_BACK
            return
        assert error.exit_code == 5
        first = error.undone.failures[0]
        assert first.code == CODES[code]
        assert first.call == call or call == SETS_BACK
        assert error.undone.count + len(error.leaks) == self.objects


def require_reported(sim: Simulator, empty: Set[Key], reported: str, *, may_be_left: bool, failed: object) -> None:
    """Requires that all which is left is named in what was reported, and frees it for the next call to fail. empty:
    what was alive before. failed: for the error of this test."""
    left = sim.alive() - empty
    assert {where for _, where in left} <= {*re.findall("0x[0-9a-f]+", reported)}, failed
    assert not left or may_be_left, failed
    sim.free_everything(but=empty)
    ctypes.CDLL(sim.runtime.path).hipSetDevice(0)
    _core.take_leaks()
