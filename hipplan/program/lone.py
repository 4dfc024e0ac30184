"""Runs that only one of two programs has: a change need not look at their objects one by one. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence, Set
from itertools import chain, repeat
from operator import is_not
from typing import NamedTuple, TypeAlias, cast

from hipplan.kinds.mapping.live import Map
from hipplan.program.mapped_runs import MappedRun
from hipplan.program.numbered import OF_COUNT
from hipplan.program.program import Program
from hipplan.program.runs import Run, plain, runs
from hipplan.program.series import Parts, Series, segments
from hipplan.program.steps import Step
from hipplan.program.upward import upward

_Of: TypeAlias = tuple[str, bool]
"""(region or name of a line with `count:`, whether it is such a line) of a run."""


class Lone(NamedTuple):
    """Runs of regions that have no chunk in the other program, and of lines with `count:` that have nothing there."""

    old: Sequence[Run] = ()
    new: Sequence[Run] = ()


def lone(old: Program, new: Program) -> Lone:
    """Finds the runs that only one program has, in each. In the new one, mappings of a region are in the order of
    addresses."""
    before, after = _all_of(old), _all_of(new)
    gone = before - after - _written_out(new, before - after)
    come = after - before - _written_out(old, after - before)
    come = {(of, is_counted) for of, is_counted in come if is_counted or _is_upward(new, of)}
    return Lone(_runs_of(old, gone), _runs_of(new, come))


def _all_of(program: Program) -> set[_Of]:
    return {_of(run) for _, run in runs(program.steps)}


def _of(run: Run) -> _Of:
    return run.of, run.sign == OF_COUNT


def _runs_of(program: Program, wanted: Set[_Of]) -> tuple[Run, ...]:
    return tuple(run for _, run in runs(program.steps) if _of(run) in wanted) if wanted else ()


def _written_out(program: Program, sought: Set[_Of]) -> set[_Of]:
    """Returns those of which a program has steps that are written out."""
    if not sought:
        return set()
    made = [step for step in plain(program.steps) if step.makes]
    chunks = [step for step in made if step.makes in ("allocation", "mapping")]
    places = (step.reservation for step in chunks if isinstance(step, Map))
    regions = chain((step.name.partition("#")[0] for step in chunks), places)
    counted = (step.name.rpartition(".")[0] for step in made)
    return {*zip(regions, repeat(False)), *zip(counted, repeat(True))} & sought


def _is_upward(program: Program, region: str) -> bool:
    """Whether a program maps the chunks of a region one after the other."""
    end = 0
    for start, size in _mapped(program, region):
        if start < end:
            return False
        end = start + size
    return True


def _mapped(program: Program, region: str) -> Iterator[tuple[int, int]]:
    """(offset, bytes) of each mapping of a region that is in no run, and of each run, in the order of the steps."""
    for segment in segments(program.steps):
        if isinstance(segment, MappedRun):
            if segment.of == region:
                yield segment.offset, segment.end - segment.offset
        elif not isinstance(segment, Run):
            mapped = (step for step in segment if isinstance(step, Map) and step.reservation == region)
            yield from ((step.offset, step.size) for step in mapped)


def besides(some_steps: Sequence[Step], left_out: Sequence[Run]) -> Sequence[Step]:
    """The steps that are in none of these runs, which are of this very sequence."""
    if not left_out:
        return some_steps
    apart = {id(run) for run in left_out}
    return [*chain.from_iterable(segment for segment in segments(some_steps) if id(segment) not in apart)]


def upward_with(made: Sequence[Step | Run], ranges: Container[object], apart: Sequence[Run]) -> Series[Step]:
    """upward() for steps and these runs of them, whose mappings are in the order of addresses already."""
    if not apart:
        return Series(upward(cast("Sequence[Step]", made), ranges))
    single = [step for step in made if not isinstance(step, Run)]
    in_order = upward(single, ranges)
    if any(map(is_not, in_order, single)):
        return Series(upward(chain.from_iterable(step if isinstance(step, Run) else [step] for step in made), ranges))
    parts: Parts[Step] = Parts()
    for step in made:
        parts.extend(step if isinstance(step, Run) else [step])
    return parts.series()
