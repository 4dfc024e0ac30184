"""What thousands of chunks have in common in a line: kv#0..11999 stands for kv#0 to kv#11999, and kv[0..3] for kv[0] to
kv[3]."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from operator import itemgetter
from typing import TypeVar

from hipplan.program.chunk_runs import chunk_runs, with_runs_of
from hipplan.program.program import Program
from hipplan.program.regions import mapping_of, memory_of, numbers_in

Value = TypeVar("Value")

Sizes = dict[str, int]
"""Name of an object or of a family -> bytes of each."""

_MOST = 1_000_000
"""Names that are written out at most: a lock may come from anywhere."""


def sizes_of(program: Program) -> Sizes:
    """The bytes that each object of a program takes, padding included."""
    single = with_runs_of((), program.steps)
    others = {resource.name: resource.size for resource in program.of_steps(single) if resource.size}
    of_runs = (
        (_family(run.region, run.makes == "allocation", run.chunks[0], run.chunks[-1]), run.memory_size)
        for _, run in chunk_runs(program.steps)
    )
    return in_families(chain(others.items(), of_runs))


def in_families(values: Iterable[tuple[str, Value]]) -> dict[str, Value]:
    """Neighbours of one value, as their size, as one family. values: of objects and families."""
    members: dict[tuple[str, bool], list[tuple[int, int, Value]]] = {}
    made: dict[str, Value] = {}
    for name, value in values:
        if (numbers := numbers_in(name)) is None:
            made[name] = value
            continue
        last = numbers.first if numbers.last is None else numbers.last
        members.setdefault((numbers.of, numbers.is_memory), []).append((numbers.first, last, value))
    for (of, is_memory), ranges in members.items():
        joined: list[tuple[int, int, Value]] = []
        for first, last, value in sorted(ranges, key=itemgetter(0)):
            if joined and joined[-1][1] + 1 == first and joined[-1][2] == value:
                first = joined.pop()[0]
            joined.append((first, last, value))
        made |= {_family(of, is_memory, first, last): value for first, last, value in joined}
    return made


def one_by_one(values: Mapping[str, Value]) -> dict[str, Value]:
    """The value of each object; families of too many stay."""
    made: dict[str, Value] = {}
    for name, value in values.items():
        names = [*_names(name)] if _count(name) + len(made) <= _MOST else [name]
        made |= dict.fromkeys(names, value)
    return made


def _count(name: str) -> int:
    numbers = numbers_in(name)
    return 1 if numbers is None or numbers.last is None else max(0, numbers.last - numbers.first + 1)


def _names(name: str) -> Iterator[str]:
    numbers = numbers_in(name)
    if numbers is None or numbers.last is None:
        yield name
        return
    for number in range(numbers.first, numbers.last + 1):
        yield _family(numbers.of, numbers.is_memory, number, number)


def _family(of: str, is_memory: bool, first: int, last: int) -> str:
    name = memory_of if is_memory else mapping_of
    return name(of, first if first == last else f"{first}..{last}")
