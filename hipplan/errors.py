"""What can go wrong: diagnostics, exceptions and exit codes.

A `Diagnostic` is a value: code, place, what, why, hint. Text, JSON and tests all come from it.
This file imports nothing of hipplan, so every other file may import it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from enum import IntEnum
from itertools import islice, takewhile
from typing import Any, ClassVar


class ExitCode(IntEnum):
    """How the command ends. Scripts branch on these, so the numbers never change."""

    OK = 0
    BUG = 1
    INVALID = 2
    MACHINE = 3
    ROLLED_BACK = 4
    LEAKED = 5
    CHANGES = 6
    IN_DOUBT = 7
    HUNG_UP = 129
    INTERRUPTED = 130
    TERMINATED = 143


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of source text. Lines and columns count from 1; the end column is one past the last character."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    text: str
    """The whole source line that `line` names, without its line break."""

    expansion: str = ""
    """For what `each` repeats: which repetition this is."""

    path: str = ""
    """For data without text, whose lines and columns are 0: the path of keys, such as buffers.kv.size."""

    def __str__(self) -> str:
        return self.path or f"{self.file}:{self.line}:{self.column}"

    def repeated(self, expansion: str) -> Span:
        """Returns the same place in one repetition. dataclasses.replace would take five times as long."""
        return Span(self.file, self.line, self.column, self.end_line, self.end_column, self.text, expansion, self.path)


DIAGNOSTICS_MAX = 1000
"""How many are shown; the rest is counted."""
_TEXT_MAX = 2000


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One message: what is wrong, where, why, and how to fix it."""

    code: str
    summary: str
    span: Span | None = None
    label: str = ""
    """A few words beside the caret."""
    why: str = ""
    hint: str = ""
    severity: str = "error"
    """error or warning."""
    notes: tuple[str, ...] = ()
    """Further `name: text` lines, such as `driver: hipMemCreate -> hipErrorOutOfMemory (2)`."""
    left_out: int = 0
    """For HP027: how many diagnostics it counts."""

    def __post_init__(self) -> None:
        for part in ("summary", "label", "why", "hint"):  # a file may name things at a length of megabytes
            if len(text := getattr(self, part)) > _TEXT_MAX:
                object.__setattr__(self, part, f"{text[:_TEXT_MAX]}...")

    def __str__(self) -> str:
        return render_diagnostic(self)

    def to_json(self) -> dict[str, Any]:
        """Everything except the source line, which the reader has."""
        out = asdict(self) | {"notes": [*self.notes]}
        if out["span"] is not None:
            del out["span"]["text"]
        return out


def at_most(diagnostics: Iterable[Diagnostic], most: int = DIAGNOSTICS_MAX) -> tuple[Diagnostic, ...]:
    """Returns the first thousand, then one that counts the rest (HP027)."""
    shown: list[Diagnostic] = []
    rest: list[Diagnostic] = []
    for diagnostic in diagnostics:
        (rest if diagnostic.left_out or len(shown) >= most else shown).append(diagnostic)
    if rest:
        count = sum(diagnostic.left_out or 1 for diagnostic in rest)
        severity = "error" if any(diagnostic.severity == "error" for diagnostic in rest) else "warning"
        shown.append(Diagnostic("HP027", f"and {count:,} more", severity=severity, left_out=count))
    return tuple(shown)


def render_diagnostic(diagnostic: Diagnostic) -> str:
    """The text form: place and summary, the source line with a caret, then why, hint and notes."""
    span = diagnostic.span
    head = f"{diagnostic.severity}[{diagnostic.code}]: {diagnostic.summary}"
    lines = [f"{span}: {head}" if span else head]
    if span is not None and span.text.strip():
        lines += _excerpt(span, diagnostic.label)
    elif diagnostic.label:
        lines.append(f"  {diagnostic.label}")
    if span is not None and span.expansion:
        lines.append(f"  in:   {span.expansion}")
    if diagnostic.why:
        lines.append(f"  why:  {diagnostic.why}")
    if diagnostic.hint:
        lines.append(f"  hint: {diagnostic.hint}")
    lines += [f"  {note}" for note in diagnostic.notes]
    return "\n".join(map(printable, lines))


SUGGESTIONS_MAX = 20
"""How many errors of one plan or file get a suggestion."""

_COMPARED, _NEAR, _LOOKED_AT = 20, 300, 10_000
"""How many names a wrong one is compared with (those with the most similar start and end), how many of the nearest
length are considered, and how many names are read. Comparing two long names takes a millisecond."""


def suggest(word: object, known: Iterable[str]) -> str:
    """Returns `did you mean 'x'?` for the nearest existing name; empty if none is near."""
    if len(str(word)) > 80:
        return ""
    import difflib

    names = list(islice(known, _LOOKED_AT))
    near = [name for name in names if str(name).lower() == str(word).lower()]
    if len(names) > _NEAR:  # a typo is about as long as what was meant
        names.sort(key=lambda name: abs(len(str(name)) - len(str(word))))
    if len(names) > _COMPARED:
        names = sorted(names[:_NEAR], key=lambda name: -_alike(str(word), str(name)))[:_COMPARED]
    near = near or difflib.get_close_matches(str(word), names, n=1, cutoff=0.6)
    return f"did you mean '{near[0]}'?" if near else ""


def _alike(word: str, name: str) -> int:
    """Counts the characters that two words have in common at their start and at their end."""
    pairs = zip(word, name, strict=False), zip(reversed(word), reversed(name), strict=False)
    return sum(1 for pair in pairs for _ in takewhile(lambda both: both[0] == both[1], pair))


class Suggestions:
    """suggest() for the first errors only: finding the nearest of many names is slow."""

    def __init__(self) -> None:
        self._left = SUGGESTIONS_MAX

    def nearest(self, word: object, known: Iterable[str]) -> str:
        self._left -= 1
        return suggest(word, known) if self._left >= 0 else ""

    def __bool__(self) -> bool:
        return self._left > 0


def suggest_or_list(word: object, known: Iterable[str]) -> str:
    """suggest(), or else the first few existing names: of a repeated object, all its members are meant.

    Names with a # are hipplan's own and are skipped.
    """
    known = [name for name in known if "#" not in name]
    start = f"{word}."
    members = [name for name in known if name.startswith(start) and name[len(start) :].replace(".", "").isdigit()]
    few = ", ".join([*(members or known)[:5], *["..."] * (len(members or known) > 5)])
    return ("" if members else suggest(word, known)) or f"there are: {few or 'none'}"


_EXCERPT_WIDTH = 160


def _excerpt(span: Span, label: str) -> list[str]:
    """The source line and the caret line under it. A very long line is cut around the place."""
    text, start = span.text, span.column - 1
    end = span.end_column - 1 if span.end_line == span.line else len(text)
    offset = max(0, start - _EXCERPT_WIDTH // 2) if len(text) > _EXCERPT_WIDTH else 0
    shown = text[offset : offset + _EXCERPT_WIDTH].rstrip()
    start, end = start - offset, min(end - offset, len(shown))
    # Tabs stay tabs in the padding, so that the caret stands under its token however wide a tab is.
    padding = "".join("\t" if c == "\t" else " " for c in shown[:start].ljust(start))
    gutter = f"{span.line:>5} | "
    caret = f"{'|':>7} {padding}{'^' * max(1, end - start)} {label}".rstrip()
    return [gutter + shown, caret]


def printable(text: str) -> str:
    """A line of text that is safe to print, whatever its source. Control characters would move the terminal's cursor,
    and a line break forge a line: each is shown as a replacement sign, one column wide."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def is_text(text: str) -> bool:
    """Whether UTF-8 can encode it: file names and arguments of the command may be other bytes."""
    return not any("\ud800" <= c <= "\udfff" for c in text)


def reason_of(error: Exception) -> str:
    """The system's reason for refusing a file, without the file's name."""
    return getattr(error, "strerror", None) or str(error)


class Problem(Exception):
    """The words of a diagnostic, raised by code that does not know the place in the plan."""

    def __init__(self, code: str, summary: str, *, why: str = "", hint: str = "") -> None:
        super().__init__(summary)
        self.code = code
        self.summary = summary
        self.why = why
        self.hint = hint

    def diagnostic(self, span: Span | None = None) -> Diagnostic:
        return Diagnostic(self.code, self.summary, span, why=self.why, hint=self.hint)


class HipplanError(Exception):
    """The base class of all errors that hipplan raises. Its text is its rendered diagnostics."""

    exit_code: ClassVar[ExitCode] = ExitCode.BUG

    def __init__(self, diagnostics: Diagnostic | Iterable[Diagnostic]) -> None:
        many = (diagnostics,) if isinstance(diagnostics, Diagnostic) else at_most(diagnostics)
        self.diagnostics: tuple[Diagnostic, ...] = many
        super().__init__(many)

    def __str__(self) -> str:
        return "\n".join(map(render_diagnostic, self.diagnostics))


class PlanError(HipplanError):
    """The plan is invalid. It has the diagnostics of all its files, in order."""

    exit_code = ExitCode.INVALID


class MachineError(HipplanError):
    """The plan is valid, but this machine cannot hold it."""

    exit_code = ExitCode.MACHINE


class ProfileError(MachineError):
    """A machine profile does not exist or is invalid. No machine was measured."""

    exit_code = ExitCode.INVALID


class RuntimeUnavailable(HipplanError):
    """No usable HIP runtime was found."""

    exit_code = ExitCode.MACHINE


class ImportRefused(RuntimeUnavailable, ImportError):
    """This process was forked while another thread was importing the module, which cannot be imported again here."""


class SettingError(RuntimeUnavailable):
    """The name of a runtime or an environment variable has an invalid value. No runtime was opened."""

    exit_code = ExitCode.INVALID


class RecordError(HipplanError):
    """A record cannot be written, or a file is not a record."""

    exit_code = ExitCode.INVALID


class _WithUndone(HipplanError):
    """Everything that was made was released, except what `leaks` names."""

    def __init__(self, diagnostics: Diagnostic | Iterable[Diagnostic], *, undone: Any = None) -> None:
        super().__init__(diagnostics)
        self.undone = undone
        """What was released and what was not (hipplan.layout.undo.Undone); None if nothing was undone."""

    @property
    def leaks(self) -> tuple[str, ...]:
        """Names of objects that could not be released."""
        return () if self.undone is None else tuple(self.undone.leaks)


class GroupError(_WithUndone):
    """Another rank failed or did not answer, so all ranks of the group stay as they were. This rank has undone its
    part, except what `leaks` names.
    """

    @property
    def exit_code(self) -> ExitCode:  # type: ignore[override]  # an instance knows better than its class
        return ExitCode.LEAKED if self.leaks else ExitCode.ROLLED_BACK


class GroupInDoubt(HipplanError):
    """This rank was ready but cannot read whether its group commits. Its memory exists, but cannot be used."""

    exit_code = ExitCode.IN_DOUBT

    def __init__(self, diagnostics: Diagnostic | Iterable[Diagnostic]) -> None:
        super().__init__(diagnostics)
        self.undo: Callable[[], Any] | None = None
        """Releases what was made, once (hipplan.layout.transaction)."""

    def close(self) -> None:
        """Releases what this rank has made, whatever the others decided. A second call does nothing.

        Raises LeakError: an object could not be released.
        """
        undo, self.undo = self.undo, None
        if undo is not None:
            undo().raise_failures()


class HeldError(HipplanError):
    """A layout that another process holds does not answer."""

    exit_code = ExitCode.ROLLED_BACK


class LayoutInUse(HipplanError):
    """A layout cannot be closed while views of it exist. Nothing was changed."""

    exit_code = ExitCode.ROLLED_BACK


class ApplyError(_WithUndone):
    """Applying a plan failed. Everything was undone, except what `leaks` and `not_as_it_was` name."""

    def __init__(
        self,
        diagnostics: Diagnostic | Iterable[Diagnostic],
        *,
        step: str = "",
        call: str = "",
        code: int = 0,
        undone: Any = None,
        not_as_it_was: tuple[str, ...] = (),
    ) -> None:
        super().__init__(diagnostics, undone=undone)
        self.step = step
        """Name of the object whose step failed."""
        self.call = call
        self.code = code
        self.not_as_it_was = not_as_it_was
        """What stays and could not be restored, a sentence each: access, the thread's current device."""

    @property
    def exit_code(self) -> ExitCode:  # type: ignore[override]  # an instance knows better than its class
        return ExitCode.LEAKED if self.leaks or self.not_as_it_was else ExitCode.ROLLED_BACK


def driver_failure(error: Any, name: str = "", why: str = "") -> ApplyError:
    """Makes an ApplyError of a HipError (which this module cannot import) outside any step: of a query or a copy."""
    notes = (f"driver: {error.call}({error.arguments}) -> {error.name} ({error.code})",)
    failed = Diagnostic("HP401", f"{error.call} failed for {error.subject}", why=why, notes=notes)
    return ApplyError(failed, step=name, call=error.call, code=error.code)


class LeakError(_WithUndone):
    """Closing a layout could not release an object; `leaks` names each one."""

    exit_code = ExitCode.LEAKED
