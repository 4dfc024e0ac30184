"""The change that makes memory again in its place, and nothing else. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from hipplan.kinds.mapping.live import Map, SetAccess, TakeOut
from hipplan.program import steps
from hipplan.program.change import KeysOf
from hipplan.program.difference import Difference
from hipplan.program.mapped_runs import MappedRun
from hipplan.program.program import Program
from hipplan.program.runs import Run, in_parts, plain
from hipplan.program.series import Series, segments
from hipplan.program.taken_out import downward
from hipplan.program.upward import upward


def renewal(old: Program, new: Program, was: Sequence[steps.Step], now: Sequence[steps.Step]) -> Difference:
    """The difference if memory is made again in its place, and nothing else. Its cost depends on that memory only.

    was, now: the steps of both programs for allocations, all of their mappings and the rights on them, in their order.
    """
    given = {step.name: step for step in plain(was) if isinstance(step, SetAccess)}
    gone = in_parts(was, lambda part: (step for step in part if step.makes), _without_rights)
    mapped: list[Map | MappedRun] = []
    for part in segments(was):
        if isinstance(part, MappedRun):
            mapped.append(part)
        elif not isinstance(part, Run):
            mapped += [step for step in part if isinstance(step, Map)]

    def take_out(step: Map) -> TakeOut:
        return step.taken_out(given.get(step.name))

    # From the end, as in a comparison of all objects.
    return Difference(
        old=old,
        new=new,
        additions=_memory(now),
        changes=Series.joined((downward(mapped, take_out), _in_line(_mapped(now)))),
        gone=gone,
        released=_memory(was),
        renamed={},
        kept=KeysOf(new, without=now),
        changed=frozenset(),
        renewed=now,
    )


def _without_rights(run: Run) -> Run:
    return run.without_rights() if isinstance(run, MappedRun) else run


def _memory(some_steps: Sequence[steps.Step]) -> Sequence[steps.Step]:
    """The steps that make allocations."""
    made = partial(filter, lambda step: step.makes == "allocation")
    return in_parts(some_steps, made, lambda run: run if run.makes == "allocation" else ())


def _mapped(some_steps: Sequence[steps.Step]) -> Sequence[steps.Step]:
    """The steps that map memory and give rights on it."""
    made = partial(filter, lambda step: step.of_mapping)
    return in_parts(some_steps, made, lambda run: () if run.makes == "allocation" else run)


def _in_line(mapped: Sequence[steps.Step]) -> Sequence[steps.Step]:
    """The same steps, with the mappings of each range in the order of their addresses, as of upward()."""
    ends: dict[str, int] = {}
    is_in_line = True
    for part in segments(mapped):
        if isinstance(part, MappedRun):
            places = [(part.of, part.offset, part.end)]
        else:
            maps = [step for step in part if isinstance(step, Map)]
            places = [(step.reservation, step.offset, step.offset + step.size) for step in maps]
        for name, start, end in places:
            is_in_line &= start >= ends.get(name, 0)
            ends[name] = end
    return mapped if is_in_line else upward(mapped, ends)
