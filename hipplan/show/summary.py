"""Short previews: similar rows become one, and a bar shows how full each device gets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, TypeVar

from hipplan.kinds.mapping.live import Map
from hipplan.plain import counted
from hipplan.program.count_runs import CountMappingRun, CountRun, count_mapping_runs, count_runs
from hipplan.program.listing import Line
from hipplan.program.program import Program
from hipplan.program.resources import RANGES, Resource
from hipplan.program.runs import Run, alike, in_parts, plain
from hipplan.program.steps import RANK_SIGN, Step
from hipplan.show.tables import fitted_table
from hipplan.units import about_size, format_size, short_size

if TYPE_CHECKING:
    from rich.table import Table

ROWS_MAX = 60
"""More rows than these are grouped."""
FAMILIES_MAX = 4
"""More names than these are counted."""
_BAR_WIDTH = 30
_NUMBERS = re.compile(r"[0-9]+")
_Row = TypeVar("_Row")


def named(rows: Iterable[_Row], part: str, name_of: Callable[[_Row], str]) -> list[_Row]:
    """The rows whose names contain a text, in any case."""
    wanted = part.lower()
    return [row for row in rows if wanted in name_of(row).lower()]


def device_bars(program: Program) -> Table:
    """A bar for each device of known size: memory in use already, and memory of the plan."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    bars = Table.grid(padding=(0, 2))
    there = program.measured.devices if program.measured else []
    for name, size in program.bytes_by_device().items():
        ordinal = program.devices[name]
        known = there[ordinal] if 0 <= ordinal < len(there) else None
        if RANK_SIGN in name or known is None or not known.memory:
            continue
        used = size + known.in_use + program.beside.get(name, 0)
        seen = max(used, known.memory / (2 * _BAR_WIDTH)) if used else 0  # at least half a character
        bar = ProgressBar(total=known.memory, completed=seen, width=_BAR_WIDTH, complete_style="default")
        in_use = f", {about_size(used - size)} of it in use already" if used > size else ""
        bars.add_row(name, bar, f"{_percent(used, known.memory)}  {_short(used)} of {_short(known.memory)}{in_use}")
    return bars


@dataclass(frozen=True, slots=True)
class Calls:
    """All steps with one driver call."""

    call: str
    steps: int
    names: Sequence[str]
    """Families of names."""


@dataclass(frozen=True, slots=True)
class ObjectsLine:
    """Objects of one kind whose names differ only in numbers, or one region with its contents."""

    name: str
    kind: str
    devices: Sequence[str]
    count: int
    holds: Mapping[str, int]
    """Kind of object -> how many are inside."""
    asked: int
    size: int
    """In bytes, as of Resource."""


@dataclass(frozen=True, slots=True)
class ChangesLine:
    """Objects of one kind to which the same happens, and which lose the same."""

    sign: str
    kind: str
    loses: str
    count: int
    bytes_lost: int
    names: Sequence[str]
    """Families of names."""


AlikeResources = Sequence[tuple[Resource, int]]
"""(resource, how many are like it) of all objects of a program."""


def resources_by_kind(program: Program) -> AlikeResources:
    """The objects of a program. Of those of a run of `count:` there is the first, others stand for themselves."""
    counted, mapped = count_runs(program.steps), count_mapping_runs(program.steps)
    if not counted:
        return [*zip(program.resources, repeat(1))]
    apart = {step.allocation.rpartition(".")[0] for step in plain(program.steps) if isinstance(step, Map)}
    whole = {(run.of, run.numbers) for run in counted.values()}  # some memory may have moved since
    apart |= {run.memory.of for run in mapped if (run.memory.of, run.memory.numbers) not in whole}
    counts: dict[str, int] = {}

    def few(run: Run) -> Sequence[Step]:
        of = run.memory.of if isinstance(run, CountMappingRun) else run.of
        if not isinstance(run, (CountRun, CountMappingRun)) or of in apart:
            return run
        first = run.numbers.start
        counts[run.name_of(first)] = len(run.numbers)
        return run[: run.number_of(first + 1)]

    steps = in_parts(program.steps, lambda part: part, few)
    return [(resource, counts.get(resource.name, 1)) for resource in program.of_steps(steps)]


def how_many(resources: AlikeResources) -> int:
    """The number of objects."""
    return sum(many for _, many in resources)


def calls_of(steps: Sequence[Step]) -> list[Calls]:
    """Counts the steps of each call, by first appearance."""
    groups = _grouped(alike(steps), lambda row: (row[0].call,))
    return [
        Calls(call, sum(many for _, many in rows), _families([(step.name, many) for step, many in rows]))
        for (call,), rows in groups
    ]


def steps_summary(steps: Sequence[Step]) -> str:
    """A line for each driver call."""
    rows = [(str(calls.steps), calls.call, _first_few(calls.names)) for calls in calls_of(steps)]
    return fitted_table((">steps", "call", "names"), rows)


def objects_of(resources: AlikeResources) -> list[ObjectsLine]:
    """Each region and reservation with its contents, and the families of other objects, by first appearance. Where
    there are more than ROWS_MAX, families of regions and reservations, too."""
    inside: Counter[tuple[str, str]] = Counter()
    for resource, many in resources:
        inside[resource.kind, resource.inside] += many
    shown = _outer(resources)
    rows = [
        *_summed(shown, inside, lambda resource: resource.name if resource.kind in RANGES else _family(resource.name))
    ]
    return rows if len(rows) <= ROWS_MAX else [*_summed(shown, inside, lambda resource: _family(resource.name))]


def resources_summary(resources: AlikeResources) -> str:
    """A line for each of objects_of()."""
    rows: list[tuple[str, ...]] = [
        (
            objects.name,
            objects.kind,
            _first_few(objects.devices),
            str(objects.count),
            ", ".join(counted(count, what) for what, count in objects.holds.items()),
            about_size(objects.asked) if objects.size else "",
            about_size(objects.size) if objects.size else "",
        )
        for objects in objects_of(resources)
    ]
    hidden = len(rows) - ROWS_MAX
    if hidden > 0:
        rows = [*rows[: ROWS_MAX - 1], (f"and {hidden + 1} more", *[""] * 6)]
    return fitted_table(("name", "kind", "device", ">count", "holds", ">asked", ">padded"), rows)


def outline(resources: Sequence[Resource]) -> Sequence[Resource]:
    """A few resources for a screen: of very many only those that are in no other."""
    if len(resources) <= ROWS_MAX:
        return resources
    return [resource for resource, _ in _outer([*zip(resources, repeat(1))])][:ROWS_MAX]


def _outer(resources: AlikeResources) -> AlikeResources:
    """The resources that are in no other."""
    chunks = {resource.memory for resource, _ in resources if resource.kind == "mapping" and "#" in resource.memory}
    return [row for row in resources if not row[0].inside and row[0].name not in chunks]


def _summed(
    shown: AlikeResources, inside: Mapping[tuple[str, str], int], name_of: Callable[[Resource], str]
) -> Iterator[ObjectsLine]:
    """The objects of each kind and name."""
    for (kind, name), rows in _grouped(shown, lambda row: (row[0].kind, name_of(row[0]))):
        holders = dict.fromkeys(who for resource, _ in rows for who in resource.devices or ("",))
        counts = {
            what: sum(inside.get((what, resource.name), 0) for resource, _ in rows) for what in ("tensor", "mapping")
        }
        yield ObjectsLine(
            rows[0][0].name if how_many(rows) == 1 else name,
            kind,
            [*holders],
            how_many(rows),
            {what: count for what, count in counts.items() if count},
            sum(many * resource.asked for resource, many in rows),
            sum(many * resource.size for resource, many in rows),
        )


def changes_of(lines: Iterable[Line]) -> list[ChangesLine]:
    """Adds up lines that are alike, by first appearance."""
    groups = _grouped(lines, lambda line: (line.sign, line.kind, line.loss.in_short if line.loss else ""))
    return [
        ChangesLine(
            sign,
            kind,
            loses,
            len(some),
            sum(line.loss.bytes for line in some if line.loss),
            _families([(line.name, 1) for line in some]),
        )
        for (sign, kind, loses), some in groups
    ]


def changes_summary(lines: Iterable[Line]) -> str:
    """A line for each of changes_of()."""
    summed = changes_of(lines)
    rows: list[tuple[str, ...]] = [
        (
            changes.sign,
            str(changes.count),
            changes.kind,
            changes.loses,
            about_size(changes.bytes_lost) if changes.bytes_lost else "",
            _first_few(changes.names),
        )
        for changes in summed
    ]
    columns: tuple[str, ...] = ("", ">count", "kind", "", ">bytes lost", "names")
    if not any(changes.loses for changes in summed):
        columns, rows = (*columns[:3], columns[-1]), [(*row[:3], row[-1]) for row in rows]
    return fitted_table(columns, rows)


def tensors_table(resources: Iterable[Resource]) -> str:
    """The place, type and shape of each tensor."""
    columns = ("tensor", ">offset", "dtype", "shape", ">bytes", "device")
    rows = []
    for resource in resources:
        if resource.kind == "tensor":
            shape = "x".join(map(str, resource.shape))
            size, devices = short_size(resource.size), ", ".join(resource.devices)
            rows.append((resource.name, format_size(resource.offset), resource.dtype, shape, size, devices))
    return fitted_table(columns, rows)


def left_out(rows: int) -> str:
    """The line below a summary."""
    return f"{counted(rows, 'row')} are grouped. Show all: --all; some: --grep NAME"


def _grouped(rows: Iterable[_Row], key: Callable[[_Row], tuple[str, ...]]) -> list[tuple[tuple[str, ...], list[_Row]]]:
    """(key, rows) of each group, in the order of first appearance."""
    groups: dict[tuple[str, ...], list[_Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return [*groups.items()]


def _family(name: str) -> str:
    """A name without its numbers: the same for names that differ only in numbers."""
    return _NUMBERS.sub("*", name)


def _families(names: Iterable[tuple[str, int]]) -> list[str]:
    """The families of names; the name itself where a family has only one. names: each with how many are like it."""
    families: dict[str, set[str]] = {}
    for name, many in names:
        whole = name.partition("#")[0].partition("[")[0]
        of_family = families.setdefault(_family(whole), set())
        of_family |= {whole, ""} if many > 1 and whole == name else {whole}
    return [min(names) if len(names) == 1 else family for family, names in families.items()]


def _first_few(names: Collection[str]) -> str:
    shown = ", ".join([*names][:FAMILIES_MAX])
    return f"{shown} and {len(names) - FAMILIES_MAX} more" if len(names) > FAMILIES_MAX else shown


def _percent(part: int, whole: int) -> str:
    share = 100 * part / whole
    return "<1%" if 0 < share < 1 else f"{share:.0f}%"


def _short(size: int) -> str:
    return short_size(size)
