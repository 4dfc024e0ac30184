"""Names: spreads counts, finds duplicates, explains unknown references, collects diagnostics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import TypeVar

from hipplan.errors import Diagnostic, Span, Suggestions
from hipplan.language.budget import Budget
from hipplan.language.counted import Counted, LineNames, TakenNames
from hipplan.language.findings import Findings
from hipplan.language.objects import Path

SpanOf = Callable[..., "Span | None"]
T = TypeVar("T")


class Names:
    """The namespace of a plan's objects (devices have another), and the diagnostics found so far."""

    def __init__(self, span: SpanOf, broken: frozenset[str], budget: Budget) -> None:
        self.span = span
        self.findings = Findings()
        self.budget = budget
        self.wrong: set[Path] = set()
        """(noun, name) of objects in which this run has found errors."""
        self.elsewhere: dict[Path, object] = {}
        """(noun, name) of objects that other ranks make -> which rank."""
        self._broken = broken
        self._begins = tuple({section.partition("$(")[0] for section in broken if "$(" in section})
        self._taken: TakenNames[Path] = TakenNames()
        self._suggestions = Suggestions()
        self.nearest = self._suggestions.nearest

    def spread(
        self, noun: str, things: Mapping[str, T], taken: TakenNames[Path] | None = None
    ) -> Iterator[tuple[LineNames, Path, T]]:
        """Each object with its concrete names: `kv` with a count of 2 is kv.0 and kv.1."""
        taken = self._taken if taken is None else taken
        for written, entry in things.items():
            path = (noun, written)
            count = getattr(entry, "count", None)
            names: LineNames = [written]
            if count is not None:
                self.ask("objects", count, f"'{written}'", (*path, "count"))
                names = Counted(written, count)
            if twice := taken.taken(names):
                for name, first in twice.items():
                    self._twice(name, first, path)
                names = [name for name in names if name not in twice]
            taken.add(names, path)
            yield names, path, entry

    def take(self, name: str, path: Path) -> None:
        """Register a name; reports a duplicate."""
        if (first := self._taken.get(name)) is not None:
            self._twice(name, first, path)
        else:
            self._taken.add([name], path)

    def ask(self, kind: str, count: int, who: str, path: Path) -> None:
        """Count objects that are about to be made. Raises PlanError if there are too many."""
        self.budget.take(kind, count, who, lambda: self.span(path))

    def missing(
        self,
        code: str,
        noun: str,
        name: str,
        path: Path,
        known: Callable[[], Iterable[str]],
        *,
        key: bool = False,
        hint: str = "",
        otherwise: Callable[[], str] = str,
    ) -> None:
        """Report a reference to an unknown name, unless the error in its definition is reported already.

        known: the existing names; otherwise: a hint if none is similar. Both are called only for the first errors.
        """
        self.wrong.add(path[:2])
        if self.is_broken(noun, name) or self.findings.enough():
            return
        if not hint:
            hint = self.whose(noun, name, "give this the same rank:")
        if self._suggestions and not hint:
            broken = (path_text.partition(":") for path_text in sorted(self._broken))
            names = [*known(), *(named for of, _, named in broken if of == noun)]
            hint = self.nearest(name, names) or otherwise() or (f"the plan has {_listed(names)}" if names else "")
        hint = hint or f"define it under {noun}:"
        self.report(code, f"there is no {noun[:-1]} '{name}'", path, key=key, hint=hint)

    def is_elsewhere(self, noun: str, name: str) -> bool:
        """Whether other ranks make this object, or the one that it is a part of."""
        return any((noun, part) in self.elsewhere for part in (name, *families_of(name))) if self.elsewhere else False

    def whose(self, noun: str, name: str, advice: str) -> str:
        """The hint for a name that only other ranks have; else empty."""
        name = name.removesuffix(".*")
        who = next(
            (self.elsewhere[noun, part] for part in (name, *families_of(name)) if (noun, part) in self.elsewhere), ""
        )
        return "" if who == "" else f"only rank {who} makes '{name}': {advice}"

    def is_broken(self, noun: str, name: str) -> bool:
        """Whether a name may belong to an object whose definition is wrong."""
        if not self._broken:
            return False
        if not self._broken.isdisjoint((noun, f"{noun}:")):  # all of them
            return True
        if any(f"{noun}:{part}" in self._broken for part in (name.removesuffix(".*"), *families_of(name))):
            return True
        # A name with an expression in it stands for all names with the same beginning.
        return f"{noun}:{name}".startswith(self._begins)

    def report(self, code: str, summary: str, path: Path, *, key: bool = False, **more: str) -> None:
        """Add a diagnostic at the value (or the key) of a path."""
        self.wrong.add(path[:2])
        if not self.findings.enough():
            self.findings.add(Diagnostic(code, summary, self.span(path, key=key), **more))  # type: ignore[arg-type]

    def _twice(self, name: str, first: Path, path: Path) -> None:
        where = self.span(first, key=True)
        self.report(
            "HP204",
            f"the name '{name}' is used twice",
            path,
            key=True,
            label=f"also in {first[0]}, line {where.line}" if where and where.line else f"also in {first[0]}",
            why="everything but devices shares one namespace: layout['name'] is one object",
            hint="rename one of them",
        )


def families_of(name: str) -> list[str]:
    """layer.3.1 belongs to layer and to layer.3."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def families(lines: Iterable[LineNames], budget: Budget) -> dict[str, LineNames]:
    """Family -> its members, in order: what `kv.*` stands for. lines: the names that each line of the plan makes."""
    similar: dict[str, LineNames] = {}
    for family, together in _neighbours(lines):
        above = [*families_of(family), family]
        budget.take("links", len(together) * len(above), f"'{together[-1]}', in as many families,")
        for name_above in above:
            there = similar.setdefault(name_above, together)
            if isinstance(there, list) and there is not together:
                there.extend(together)
            elif there is not together:
                similar[name_above] = [*there, *together]
            elif isinstance(together, list):
                similar[name_above] = [*together]  # each family has a list of its own
    return similar


def _neighbours(lines: Iterable[LineNames]) -> Iterator[tuple[str, LineNames]]:
    """(family, names) of neighbours in one family. What `count` makes of a line is together."""
    for is_list, alike in groupby(lines, lambda names: isinstance(names, list)):
        if not is_list:
            yield from ((names.of, names) for names in alike if not isinstance(names, list))
            continue
        for family, members in groupby(chain.from_iterable(alike), lambda name: name.rpartition(".")[0]):
            if family:
                yield family, [*members]


_LISTED_MAX = 6


def _listed(known: Sequence[str]) -> str:
    more = len(known) - _LISTED_MAX
    return ", ".join(known[:_LISTED_MAX]) + (f" and {more} more" if more > 0 else "")
