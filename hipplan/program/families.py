"""Sizes of thousands of chunks in a line: kv#0..11999 stands for kv#0 to kv#11999, and kv[0..3] for kv[0] to kv[3]."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from hipplan.program.program import Program
from hipplan.program.runs import runs, written_out
from hipplan.program.series import Series

Sizes = dict[str, int]
"""Name of an object or of a family -> bytes of each."""

_NUMBER = r"(0|[1-9][0-9]{0,9})"
_MEMBER = re.compile(rf"(?P<before>[^#[]+[#[]){_NUMBER}(?:\.\.{_NUMBER})?(?P<after>\]?)").fullmatch
_MOST = 1_000_000
"""Names that are written out at most: a lock may come from anywhere."""


def sizes_of(program: Program) -> Sizes:
    """The bytes that each object of a program takes, padding included."""
    in_runs = {run.name_of(run.chunks[0]): run for _, run in runs(program.steps)}
    plain = Series.joined(part for _, part in written_out(program.steps))
    others = {resource.name: resource.size for resource in program.of_steps(plain) if resource.size}
    families = ((_name(*_split(name), run.chunks[0], run.chunks[-1]), run.memory_size) for name, run in in_runs.items())
    return in_families(chain(others.items(), families))


def in_families(sizes: Iterable[tuple[str, int]]) -> Sizes:
    """Neighbours of one size as one family. sizes: of objects and families."""
    members: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
    made: Sizes = {}
    for name, size in sizes:
        if (match := _MEMBER(name)) is None:
            made[name] = size
            continue
        first = int(match[2])
        members.setdefault((match["before"], match["after"]), []).append((first, int(match[3] or first), size))
    for (before, after), ranges in members.items():
        joined: list[tuple[int, int, int]] = []
        for first, last, size in sorted(ranges):
            if joined and joined[-1][1] + 1 == first and joined[-1][2] == size:
                first = joined.pop()[0]
            joined.append((first, last, size))
        made |= {_name(before, after, first, last): size for first, last, size in joined}
    return made


def one_by_one(sizes: Mapping[str, int]) -> Sizes:
    """The size of each object; families of too many stay."""
    made: Sizes = {}
    for name, size in sizes.items():
        names = [*_names(name)] if _count(name) + len(made) <= _MOST else [name]
        made |= dict.fromkeys(names, size)
    return made


def _count(name: str) -> int:
    match = _MEMBER(name)
    return 1 if match is None or match[3] is None else max(0, int(match[3]) - int(match[2]) + 1)


def _names(name: str) -> Iterator[str]:
    match = _MEMBER(name)
    if match is None or match[3] is None:
        yield name
        return
    for number in range(int(match[2]), int(match[3]) + 1):
        yield _name(match["before"], match["after"], number, number)


def _split(name: str) -> tuple[str, str]:
    """What is before and behind the number in a name of a chunk."""
    match = _MEMBER(name)
    assert match is not None, "runs have such names"
    return match["before"], match["after"]


def _name(before: str, after: str, first: int, last: int) -> str:
    return f"{before}{first}{after}" if first == last else f"{before}{first}..{last}{after}"
