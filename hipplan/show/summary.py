"""Short previews: similar rows become one, and a bar shows how full each device gets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from rich.progress_bar import ProgressBar
from rich.table import Table

from hipplan.plain import counted
from hipplan.program.listing import Line
from hipplan.program.program import Program
from hipplan.program.resources import Resource
from hipplan.program.steps import RANK_SIGN, Step
from hipplan.show.tables import fitted_table
from hipplan.units import about_size, format_size

ROWS_MAX = 60
"""More rows than these are summed up."""
_BAR_WIDTH = 30
_RANGES = ("region", "reservation")
_NUMBERS = re.compile(r"[0-9]+")
_Row = TypeVar("_Row")


def named(rows: Iterable[_Row], part: str, name_of: Callable[[_Row], str]) -> list[_Row]:
    """The rows whose names contain a text, in any case."""
    wanted = part.lower()
    return [row for row in rows if wanted in name_of(row).lower()]


def device_bars(program: Program) -> Table:
    """A bar for each device of known size: memory in use already, and memory of the plan."""
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


def steps_summary(steps: Iterable[Step]) -> str:
    """A line for each driver call."""
    groups = _grouped(steps, lambda step: (step.call,))
    rows = [(str(len(alike)), call, _names([step.name for step in alike])) for (call,), alike in groups]
    return fitted_table((">steps", "call", "names"), rows)


def resources_summary(resources: Sequence[Resource]) -> str:
    """A line for each region and reservation with its contents, and one for each group of similar other objects."""
    inside = Counter((resource.kind, resource.inside) for resource in resources)
    parts = {resource.memory for resource in resources if resource.kind == "mapping" and "#" in resource.memory}
    shown = [resource for resource in resources if not resource.inside and resource.name not in parts]
    rows = [
        *_summed(shown, inside, lambda resource: resource.name if resource.kind in _RANGES else _family(resource.name))
    ]
    if len(rows) > ROWS_MAX:
        rows = [*_summed(shown, inside, lambda resource: _family(resource.name))]
    hidden = len(rows) - ROWS_MAX
    if hidden > 0:
        rows = [*rows[: ROWS_MAX - 1], (f"and {hidden + 1} more", *[""] * 6)]
    return fitted_table(("name", "kind", "device", ">count", "holds", ">asked", ">padded"), rows)


def outline(resources: Sequence[Resource]) -> Sequence[Resource]:
    """A few resources for a screen: of very many only those that are in no other."""
    if len(resources) <= ROWS_MAX:
        return resources
    parts = {resource.memory for resource in resources if resource.kind == "mapping" and "#" in resource.memory}
    return [resource for resource in resources if not resource.inside and resource.name not in parts][:ROWS_MAX]


def _summed(
    shown: Iterable[Resource], inside: Mapping[tuple[str, str], int], name_of: Callable[[Resource], str]
) -> Iterator[tuple[str, ...]]:
    """A row for each kind and name."""
    for (kind, name), alike in _grouped(shown, lambda resource: (resource.kind, name_of(resource))):
        holders = dict.fromkeys(
            who for resource in alike for who in ([who for who, _ in resource.held_by] or [resource.device])
        )
        held = [
            (what, sum(inside.get((what, resource.name), 0) for resource in alike)) for what in ("tensor", "mapping")
        ]
        asked, size = sum(resource.asked for resource in alike), sum(resource.size for resource in alike)
        yield (
            alike[0].name if len(alike) == 1 else name,
            kind,
            _first_few(holders),
            str(len(alike)),
            ", ".join(counted(count, what) for what, count in held if count),
            about_size(asked) if size else "",
            about_size(size) if size else "",
        )


def changes_summary(lines: Iterable[Line]) -> str:
    """A line for each kind of object to which the same happens, and which loses the same."""
    groups = _grouped(lines, lambda line: (line.sign, line.kind, line.loss.in_short if line.loss else ""))
    rows: list[tuple[str, ...]] = []
    for (sign, kind, loses), alike in groups:
        lost = sum(line.loss.bytes for line in alike if line.loss)
        names = _names([line.name for line in alike])
        rows.append((sign, str(len(alike)), kind, loses, about_size(lost) if lost else "", names))
    columns: tuple[str, ...] = ("", ">count", "kind", "", ">bytes lost", "names")
    if not any(loses for _, _, loses in dict(groups)):
        columns, rows = (*columns[:3], columns[-1]), [(*row[:3], row[-1]) for row in rows]
    return fitted_table(columns, rows)


def tensors_table(resources: Iterable[Resource]) -> str:
    """The place, type and shape of each tensor."""
    columns = ("tensor", ">offset", "dtype", "shape", ">bytes", "device")
    rows = []
    for resource in resources:
        if resource.kind == "tensor":
            shape = "x".join(map(str, resource.shape))
            device = ", ".join(device for device, _ in resource.held_by) or resource.device
            rows.append(
                (resource.name, format_size(resource.offset), resource.dtype, shape, format_size(resource.size), device)
            )
    return fitted_table(columns, rows)


def left_out(rows: int) -> str:
    """The line below a summary."""
    return f"{counted(rows, 'row')} summed up; --all shows each, --grep NAME those with a name"


def _grouped(rows: Iterable[_Row], key: Callable[[_Row], tuple[str, ...]]) -> list[tuple[tuple[str, ...], list[_Row]]]:
    """(key, rows) of each group, in the order of first appearance."""
    groups: dict[tuple[str, ...], list[_Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return [*groups.items()]


def _family(name: str) -> str:
    """A name without its numbers: the same for names that differ only in numbers."""
    return _NUMBERS.sub("*", name)


def _names(names: Iterable[str]) -> str:
    """The first few families of names, as text."""
    families: dict[str, set[str]] = {}
    for name in names:
        whole = name.partition("#")[0].partition("[")[0]
        families.setdefault(_family(whole), set()).add(whole)
    return _first_few([min(names) if len(names) == 1 else family for family, names in families.items()])


def _first_few(names: Collection[str]) -> str:
    shown = ", ".join([*names][:4])
    return f"{shown} and {len(names) - 4} more" if len(names) > 4 else shown


def _percent(part: int, whole: int) -> str:
    share = 100 * part / whole
    return "<1%" if 0 < share < 1 else f"{share:.0f}%"


def _short(size: int) -> str:
    return about_size(size).removeprefix("about ")
