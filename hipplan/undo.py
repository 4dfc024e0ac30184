"""Giving back: wait for the devices that can reach the memory, then the journal in reverse.

The same for roll back and teardown. A failure does not stop the rest: it is reported by name.
"""

from __future__ import annotations

from dataclasses import dataclass

from hipplan import _core
from hipplan.errors import Diagnostic
from hipplan.live import Live
from hipplan.program import Program


@dataclass(frozen=True, slots=True)
class Failure:
    """One thing that could not be undone, or waited for."""

    name: str
    """The plan's name."""
    identity: str
    """Kind, size, address."""
    call: str
    error: str
    code: int
    arguments: str
    lost: bool
    """False for a wait that failed: then nothing is lost by it."""

    def diagnostic(self) -> Diagnostic:
        summary = f"{self.identity} was not given back" if self.lost else f"{self.identity} is not idle"
        note = f"driver: {self.call}({self.arguments}) -> {self.error} ({self.code})"
        hint = "it is free again when the process ends" if self.lost else "the device may be lost"
        return Diagnostic("HP403" if self.lost else "HP406", summary, hint=hint, notes=(note,))


@dataclass(frozen=True, slots=True)
class Undone:
    """What came of giving back."""

    count: int
    """Objects given back."""
    failures: tuple[Failure, ...]
    kept: tuple[str, ...] = ()
    """Names of what waits for its views to be let go: closed by force."""

    @property
    def leaks(self) -> tuple[str, ...]:
        """Names of what was lost."""
        return tuple(failure.name for failure in self.failures if failure.lost)

    def diagnostics(self) -> list[Diagnostic]:
        return [failure.diagnostic() for failure in self.failures]

    def summary(self) -> str:
        left = f"{len(self.leaks)} left behind" if self.leaks else "nothing left behind"
        kept = f", {len(self.kept)} kept for the views that are out" if self.kept else ""
        return f"{self.count} of {self.count + len(self.leaks) + len(self.kept)} objects given back, {left}{kept}"


def undo(program: Program, live: Live, leases: _core.LeaseBook | None = None) -> Undone:
    """Undoes everything the journal holds. Never raises for the driver's sake.

    leases: with some out, what their pointers would need in order not to hit new memory stays in the journal.
    """
    failures = list(_wait(program, live))
    report = live.journal.undo_all_but(leases) if leases else live.journal.undo_all()
    failures += [
        Failure(leak.name, leak.identity, leak.call, leak.error, leak.code, leak.arguments, lost=True)
        for leak in report.leaks
    ]
    return Undone(report.undone, tuple(failures), tuple(report.kept))


def _wait(program: Program, live: Live) -> list[Failure]:
    """hipMemUnmap does not synchronise, so every device of the plan is waited for first."""
    if not len(live.journal):
        return []
    failures = []
    for name, ordinal in program.devices.items():
        try:
            live.runtime.synchronize(ordinal)
        except _core.HipError as error:
            failures.append(
                Failure(name, f"device '{name}'", error.call, error.name, error.code, error.arguments, lost=False)
            )
    return failures
