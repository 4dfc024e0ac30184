"""Diagnostics collected over a run, so that one run reports all errors, up to a limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from hipplan.errors import DIAGNOSTICS_MAX, Diagnostic, at_most


class Findings:
    """The first thousand errors and the first thousand warnings; later ones are only counted.

    An error in an object with `each` is kept once, for the first repetition.
    """

    def __init__(self, diagnostics: Iterable[Diagnostic] = ()) -> None:
        self._kept: list[Diagnostic] = []
        self._count = {"error": 0, "warning": 0}
        self._repeated: dict[object, int] = {}
        self.extend(diagnostics)

    def add(self, diagnostic: Diagnostic) -> None:
        key = _repeated(diagnostic)
        if key in self._repeated:
            self._repeated[key] += 1
            return
        if key is not None:
            self._repeated[key] = 0
        if diagnostic.left_out or self._count[diagnostic.severity] < DIAGNOSTICS_MAX:
            self._kept.append(diagnostic)
        self._count[diagnostic.severity] += diagnostic.left_out or 1

    def extend(self, diagnostics: Iterable[Diagnostic]) -> None:
        for diagnostic in diagnostics:
            self.add(diagnostic)

    def enough(self) -> bool:
        """Whether no more errors are kept. If so, this call counts one, and the caller need not make its text."""
        self._count["error"] += self._count["error"] >= DIAGNOSTICS_MAX
        return self._count["error"] > DIAGNOSTICS_MAX

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(self.all)

    def __len__(self) -> int:
        """Errors and warnings, kept or not."""
        return sum(self._count.values())

    @property
    def all(self) -> list[Diagnostic]:
        """All diagnostics, in the order of their places."""
        return self._ordered("error", "warning")

    @property
    def errors(self) -> list[Diagnostic]:
        return self._ordered("error")

    @property
    def warnings(self) -> list[Diagnostic]:
        return self._ordered("warning")

    def _ordered(self, *severities: str) -> list[Diagnostic]:
        return list(at_most(self._counted(severities))) if self._kept else []

    def _counted(self, severities: tuple[str, ...]) -> Iterator[Diagnostic]:
        """The kept diagnostics, and one more with the number of the others."""
        kept = [diagnostic for diagnostic in self._kept if diagnostic.severity in severities]
        for diagnostic in sorted(kept, key=_place):
            more = self._repeated.get(_repeated(diagnostic), 0)
            yield (
                replace(diagnostic, notes=(*diagnostic.notes, f"and: {more} more of this each")) if more else diagnostic
            )
        for severity in severities:
            listed = sum(diagnostic.left_out or 1 for diagnostic in kept if diagnostic.severity == severity)
            if left_out := self._count[severity] - listed:
                yield Diagnostic("HP027", "", severity=severity, left_out=left_out)


def in_order(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """The diagnostics in the order of their places, a thousand at most."""
    return Findings(diagnostics).all


def _repeated(diagnostic: Diagnostic) -> object:
    """A key that is equal for the same error in several repetitions; None if it is not in a repetition."""
    span = diagnostic.span
    return (diagnostic.code, str(span)) if span is not None and span.expansion else None


def _place(diagnostic: Diagnostic) -> tuple[str, int, int]:
    span = diagnostic.span
    return (span.file, span.line, span.column) if span else ("", 0, 0)
